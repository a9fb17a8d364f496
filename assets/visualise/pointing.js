// Pointer events of a chart: they show values, select a range of time, choose tokens, and zoom with the wheel or with
// two fingers. On a touch screen a finger that moves up or down scrolls the page, as the style sheet sets.
import {listenToTrackpad} from './trackpad.js';

const MIN_DRAG = 5; // pixels that a pointer moves before a press becomes a selection
const MIN_PINCH = 12; // pixels between two fingers at least

// Two fingers on a chart with a time axis: the times under the fingers stay under them.
class Pinch {
  constructor(chart) {
    Object.assign(this, {chart, fingers: new Map(), anchorTimes: null});
  }

  share(event) {
    const {chart} = this;
    return (event.clientX - chart.plot.getBoundingClientRect().left - chart.left) / chart.width;
  }

  down(event) {
    if (event.pointerType !== 'touch' || !this.chart.isTimed) return;
    this.fingers.set(event.pointerId, this.share(event));
    if (this.fingers.size !== 2) return;
    const {from, to} = this.chart.link;
    this.anchorTimes = [...this.fingers.values()].sort((first, second) => first - second).map((share) => from + share * (to - from));
    this.chart.link.set({stretch: null, hover: null});
  }

  // Handles a moved finger; returns whether it belongs to a pinch and must do nothing else.
  move(event) {
    if (!this.fingers.has(event.pointerId)) return false;
    this.fingers.set(event.pointerId, this.share(event));
    if (!this.anchorTimes) return false;
    const [left, right] = [...this.fingers.values()].sort((first, second) => first - second);
    const length = (this.anchorTimes[1] - this.anchorTimes[0]) / Math.max(right - left, MIN_PINCH / this.chart.width);
    this.chart.link.show(this.anchorTimes[0] - left * length, this.anchorTimes[0] + (1 - left) * length);
    return true;
  }

  // Handles a lifted finger; returns whether it belonged to a pinch. A pinch ends when all fingers are lifted, so that
  // the last one selects nothing.
  up(event) {
    const wasPinching = Boolean(this.anchorTimes);
    this.fingers.delete(event.pointerId);
    if (!this.fingers.size) this.anchorTimes = null;
    return wasPinching;
  }
}

export const listenToPointer = (chart) => {
  const {plot, link} = chart;
  const pinch = new Pinch(chart);
  let start = null;
  plot.addEventListener('pointermove', (event) => {
    if (!chart.colours) return;
    if (pinch.move(event)) { start = null; return; }
    const target = chart.locate(event);
    link.set({hover: target});
    if (start && chart.isTimed && (start.isSelecting || Math.abs(event.clientX - start.pressX) > MIN_DRAG)) {
      start.isSelecting = true;
      link.select(start.time, target.time);
    }
  });
  plot.addEventListener('pointerleave', () => link.set({hover: null}));
  plot.addEventListener('pointerdown', (event) => {
    if (event.button || !chart.colours) return;
    pinch.down(event);
    start = pinch.anchorTimes ? null : {pressX: event.clientX, ...chart.locate(event), isSelecting: false};
    if (chart.isTimed) plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener('pointerup', (event) => {
    if (pinch.up(event)) start = null;
    else if (start?.isSelecting) link.go(link.stretch?.[0] ?? link.cursor);
    else if (start) chart.press(chart.locate(event));
    start = null;
  });
  plot.addEventListener('pointercancel', (event) => {
    pinch.up(event);
    start = null;
  });
  // Safari sends these events for fingers on a screen too; those zoom by their pointer events.
  if (chart.isTimed) listenToTrackpad(plot, (factor, event) => { if (!pinch.fingers.size) link.zoom(factor, chart.locate(event).time); });
  plot.addEventListener('wheel', (event) => {
    if (!chart.isTimed) return;
    const length = link.to - link.from;
    if (event.ctrlKey || event.metaKey) link.zoom(event.deltaY > 0 ? 1.25 : 0.8, chart.locate(event).time);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) link.pan(((event.deltaX || event.deltaY) / chart.width) * length);
    else return;
    event.preventDefault();
  }, {passive: false});
};
