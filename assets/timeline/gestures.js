// Gestures on the timeline: a press moves the cursor, a drag selects a range (mouse) or pans (finger, or mouse on the
// ruler), two fingers zoom, and a drag of a border changes a time.
import {listenToTrackpad} from '../../visualise/scripts/trackpad.js';

const MAX_PRESS_MOVE = 5; // pixels that a press may move
const FRICTION = 0.94; // the factor of the speed of a fling from frame to frame

// `handlers` has link(), width(), time(clientX), hit(event) -> {pans, border}, seek(time), grab(border), drag(time),
// release(), selected(), hover(event) and twice(event).
export const gestures = (stage, handlers) => {
  const pointers = new Map(); // id -> clientX
  let mode = null; // press, pan, select, border, pinch
  let [start, hit, previousPinch, flingNumber] = [null, null, null, 0];

  const secondsPerPixel = () => (handlers.link().to - handlers.link().from) / handlers.width();

  const glide = (speed) => {
    const ownNumber = flingNumber = flingNumber + 1;
    const step = () => {
      if (ownNumber !== flingNumber || Math.abs(speed) < 0.4) return;
      handlers.link().pan(-speed * secondsPerPixel());
      speed *= FRICTION;
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  };

  const pinch = () => {
    const [first, second] = [...pointers.values()];
    return {middle: (first + second) / 2, width: Math.max(Math.abs(first - second), 20)};
  };

  stage.addEventListener('pointerdown', (event) => {
    if (event.target.closest('button') || event.button > 1) return;
    flingNumber += 1;
    pointers.set(event.pointerId, event.clientX);
    stage.setPointerCapture(event.pointerId);
    if (pointers.size === 2) {
      if (mode === 'border') handlers.release();
      mode = 'pinch';
      previousPinch = pinch();
      return;
    }
    if (pointers.size > 2) return;
    hit = handlers.hit(event);
    start = {x: event.clientX, time: handlers.time(event.clientX), moveTime: performance.now(), last: event.clientX, speed: 0};
    mode = hit.border ? 'border' : event.button === 1 ? 'pan' : 'press';
    if (mode === 'border') handlers.grab(hit.border);
    if (event.button === 1) event.preventDefault();
  });

  stage.addEventListener('pointermove', (event) => {
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType === 'mouse') {
        const hovered = handlers.hit(event);
        stage.style.cursor = hovered.border ? 'col-resize' : hovered.pans ? 'grab' : 'text';
        handlers.hover(event);
      }
      return;
    }
    pointers.set(event.pointerId, event.clientX);
    if (mode === 'pinch' && pointers.size === 2) {
      const currentPinch = pinch();
      handlers.link().pan((previousPinch.middle - currentPinch.middle) * secondsPerPixel());
      handlers.link().zoom(previousPinch.width / currentPinch.width, handlers.time(currentPinch.middle));
      previousPinch = currentPinch;
      return;
    }
    if (mode === 'press' && Math.abs(event.clientX - start.x) > MAX_PRESS_MOVE) {
      mode = event.pointerType === 'mouse' && !hit.pans ? 'select' : 'pan';
    }
    if (mode === 'pan') {
      const distance = event.clientX - start.last;
      start.speed = 0.7 * distance + 0.3 * start.speed;
      start.moveTime = performance.now();
      handlers.link().pan(-distance * secondsPerPixel());
    } else if (mode === 'select') {
      handlers.link().select(start.time, handlers.time(event.clientX));
    } else if (mode === 'border') {
      handlers.drag(handlers.time(event.clientX));
    }
    start.last = event.clientX;
  });

  const handleUp = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (mode === 'pinch') {
      if (!pointers.size) mode = null;
      return;
    }
    if (mode === 'press' && event.type === 'pointerup') handlers.seek(handlers.time(event.clientX), event);
    if (mode === 'select') handlers.selected();
    if (mode === 'border') handlers.release();
    if (mode === 'pan' && performance.now() - start.moveTime < 60 && !matchMedia('(prefers-reduced-motion: reduce)').matches) glide(start.speed);
    mode = null;
  };
  stage.addEventListener('pointerup', handleUp);
  stage.addEventListener('pointercancel', handleUp);
  stage.addEventListener('dblclick', (event) => { if (!event.target.closest('button')) handlers.twice(event); });

  // Safari sends these events for fingers on a screen too; those zoom by their pointer events.
  listenToTrackpad(stage, (factor, event) => { if (!pointers.size) handlers.link().zoom(factor, handlers.time(event.clientX)); });

  stage.addEventListener('wheel', (event) => {
    const pixelsPerUnit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      handlers.link().zoom(Math.exp(Math.min(Math.max(event.deltaY * pixelsPerUnit, -120), 120) * 0.004), handlers.time(event.clientX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      handlers.link().pan((event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) * pixelsPerUnit * secondsPerPixel());
    } else {
      return; // the page scrolls
    }
    event.preventDefault();
  }, {passive: false});
};
