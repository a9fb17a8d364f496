// Pictures of a stretch of time that are cheap to pan. Time is cut into columns, each as wide as a pixel of the screen, from
// second 0 on. A picture shows some of these columns. So a pan moves it by whole pixels, and only the columns that come into
// view are painted.
const SAME_ZOOM = 1e-9; // relative difference; panning changes the length of the stretch in view by rounding errors

// The columns in view, and the places of times among them. `x` is in CSS pixels; one of them has `sharp` columns.
export class View {
  constructor({from, to}, columns, sharp, before = null) {
    const seconds = (to - from) / columns; // of a column
    const same = before?.columns === columns && Math.abs(seconds / before.seconds - 1) < SAME_ZOOM;
    Object.assign(this, {columns, sharp, seconds: same ? before.seconds : seconds, width: columns / sharp});
    this.first = Math.round(from / this.seconds);
  }

  time(column) { return (this.first + column) * this.seconds; }

  x(time) { return (Math.round(time / this.seconds) - this.first) / this.sharp; }

  // Returns by how many columns this view lies to the right of another one; infinity if the zoom differs.
  columnsAfter(other) {
    const same = other?.columns === this.columns && other.sharp === this.sharp && other.seconds === this.seconds;
    return same ? this.first - other.first : Infinity;
  }
}

// Gives a canvas a size in CSS pixels.
export const fit = (canvas, wide, high, sharp) => {
  const [across, down] = [Math.round(wide * sharp), Math.round(high * sharp)];
  if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, {width: across, height: down});
  Object.assign(canvas.style, {width: `${wide}px`, height: `${high}px`});
};

export class Pane {
  // `paint(context, view, left, right)` paints these columns of the view, and returns whether all that they show is
  // known. `edge(view)` is the column up to which the picture depends on where the view begins.
  constructor(canvas, paint, edge = () => 0) {
    Object.assign(this, {canvas, paint, edge, context: canvas.getContext('2d'), shown: null, unknown: null});
  }

  clear() {
    this.shown = null;
    this.canvas.width = Number(this.canvas.width); // setting it clears the canvas
  }

  // Paints a view: all of it, or only the columns that the previous view did not show.
  show(view, anew = false) {
    const by = anew ? Infinity : view.columnsAfter(this.shown);
    const before = this.shown;
    this.shown = view;
    if (Math.abs(by) >= view.columns) {
      this.unknown = null;
      this.piece(view, 0, view.columns);
    } else if (by) {
      this.move(by);
      const edge = Math.max(this.edge(view), this.edge(before) - by);
      this.piece(view, 0, Math.max(edge, -by));
      this.piece(view, view.columns - by, view.columns);
    }
  }

  // Paints the columns again whose data was missing, after more data has arrived.
  fill() {
    if (!this.shown || !this.unknown) return;
    const [left, right] = this.unknown.map((column) => column - this.shown.first);
    this.unknown = null;
    this.piece(this.shown, left, right);
  }

  move(by) {
    const {canvas, context} = this;
    context.save();
    context.resetTransform();
    context.globalCompositeOperation = 'copy';
    context.drawImage(canvas, -by, 0);
    context.restore();
  }

  piece(view, from, to) {
    const {canvas, context} = this;
    const [left, right] = [Math.max(from, 0), Math.min(to, canvas.width)];
    if (left >= right) return;
    context.save();
    context.resetTransform();
    context.beginPath();
    context.rect(left, 0, right - left, canvas.height);
    context.clip();
    context.clearRect(left, 0, right - left, canvas.height);
    context.scale(view.sharp, view.sharp);
    const known = this.paint(context, view, left, right);
    context.restore();
    if (known) return;
    const ends = [...(this.unknown || []), view.first + left, view.first + right];
    this.unknown = [Math.min(...ends), Math.max(...ends)];
  }
}
