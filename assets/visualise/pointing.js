// What a pointer does on a chart: it shows values, selects a stretch of time, chooses tokens, zooms with the wheel, and
// with two fingers. On a touch screen a finger that moves up or down scrolls the page, as the style sheet says.
const TOUCH = 5; // points that a pointer moves before a press becomes a selection
const NARROWEST = 12; // points between two fingers

// Two fingers on a chart with a time axis: the moments under them stay under them.
class Pinch {
  constructor(chart) {
    Object.assign(this, {chart, fingers: new Map(), held: null});
  }

  share(event) {
    const {chart} = this;
    return (event.clientX - chart.plot.getBoundingClientRect().left - chart.left) / chart.width;
  }

  down(event) {
    if (event.pointerType !== 'touch' || !this.chart.timed) return;
    this.fingers.set(event.pointerId, this.share(event));
    if (this.fingers.size !== 2) return;
    const {from, to} = this.chart.link;
    this.held = [...this.fingers.values()].sort((one, other) => one - other).map((share) => from + share * (to - from));
    this.chart.link.set({stretch: null, hover: null});
  }

  // Whether the pointer is a finger of a pinch, and so is nothing else.
  move(event) {
    if (!this.fingers.has(event.pointerId)) return false;
    this.fingers.set(event.pointerId, this.share(event));
    if (!this.held) return false;
    const [one, other] = [...this.fingers.values()].sort((first, second) => first - second);
    const length = (this.held[1] - this.held[0]) / Math.max(other - one, NARROWEST / this.chart.width);
    this.chart.link.show(this.held[0] - one * length, this.held[0] + (1 - one) * length);
    return true;
  }

  // Whether a pinch was going on. It ends when all fingers are gone, so that the last one selects nothing.
  up(event) {
    const pinched = Boolean(this.held);
    this.fingers.delete(event.pointerId);
    if (!this.fingers.size) this.held = null;
    return pinched;
  }
}

export const listen = (chart) => {
  const {plot, link} = chart;
  const pinch = new Pinch(chart);
  let start = null;
  plot.addEventListener('pointermove', (event) => {
    if (!chart.drawn) return;
    if (pinch.move(event)) { start = null; return; }
    const found = chart.under_(event);
    link.set({hover: found});
    if (start && chart.timed && (start.selecting || Math.abs(event.clientX - start.at) > TOUCH)) {
      start.selecting = true;
      link.select(start.time, found.time);
    }
  });
  plot.addEventListener('pointerleave', () => link.set({hover: null}));
  plot.addEventListener('pointerdown', (event) => {
    if (event.button || !chart.drawn) return;
    pinch.down(event);
    start = pinch.held ? null : {at: event.clientX, ...chart.under_(event), selecting: false};
    if (chart.timed) plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener('pointerup', (event) => {
    if (pinch.up(event)) start = null;
    else if (start?.selecting) link.go(link.stretch?.[0] ?? link.cursor);
    else if (start) chart.press(chart.under_(event));
    start = null;
  });
  plot.addEventListener('pointercancel', (event) => {
    pinch.up(event);
    start = null;
  });
  plot.addEventListener('wheel', (event) => {
    if (!chart.timed) return;
    const length = link.to - link.from;
    if (event.ctrlKey || event.metaKey) link.zoom(event.deltaY > 0 ? 1.25 : 0.8, chart.under_(event).time);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) link.pan(((event.deltaX || event.deltaY) / chart.width) * length);
    else return;
    event.preventDefault();
  }, {passive: false});
};
