/* Draws a game of sumo on a canvas, for every picture of the browser; `game()` returns it, or null. */

"use strict";

function drawRing(canvas, game) {
  const pen = canvas.getContext("2d"), scale = canvas.width / (2.2 * Sumo.RING);

  function draw() {
    pen.setTransform(scale, 0, 0, -scale, canvas.width / 2, canvas.height / 2);
    pen.clearRect(-9, -9, 18, 18);
    pen.lineWidth = 0.12;
    pen.strokeStyle = "#8a6d3b";
    pen.beginPath();
    pen.arc(0, 0, Sumo.RING, 0, 7);
    pen.stroke();
    (game()?.discs ?? []).forEach((disc, side) => {
      pen.fillStyle = ["#2f6fab", "#c8553d"][side];
      pen.beginPath();
      pen.arc(disc.x, disc.y, Sumo.RADIUS, 0, 7);
      pen.fill();
    });
    requestAnimationFrame(draw);
  }
  draw();
}
