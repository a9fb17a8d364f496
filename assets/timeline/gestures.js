// Gestures on the timeline: a press moves the cursor, a drag selects a range (mouse) or pans (finger, or mouse on the
// ruler), two fingers zoom, and a drag of a border changes a time.
const MAX_PRESS_MOVE = 5; // pixels that a press may move
const FRICTION = 0.94; // the factor of the speed of a fling from frame to frame

// `on` has: link, width(), time(clientX), hit(event) -> {pans, border}, seek(time), grab(border), drag(time), release().
export const gestures = (stage, on) => {
  const pointers = new Map(); // id -> clientX
  let mode = null; // press, pan, select, border, pinch
  let [start, hit, previousPinch, flingNumber] = [null, null, null, 0];

  const perPixel = () => (on.link().to - on.link().from) / on.width();

  const glide = (speed) => {
    const ownNumber = flingNumber = flingNumber + 1;
    const step = () => {
      if (ownNumber !== flingNumber || Math.abs(speed) < 0.4) return;
      on.link().pan(-speed * perPixel());
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
      if (mode === 'border') on.release();
      mode = 'pinch';
      previousPinch = pinch();
      return;
    }
    if (pointers.size > 2) return;
    hit = on.hit(event);
    start = {x: event.clientX, time: on.time(event.clientX), moveTime: performance.now(), last: event.clientX, speed: 0};
    mode = hit.border ? 'border' : event.button === 1 ? 'pan' : 'press';
    if (mode === 'border') on.grab(hit.border);
    if (event.button === 1) event.preventDefault();
  });

  stage.addEventListener('pointermove', (event) => {
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType === 'mouse') {
        const hovered = on.hit(event);
        stage.style.cursor = hovered.border ? 'col-resize' : hovered.pans ? 'grab' : 'text';
        on.hover(event);
      }
      return;
    }
    pointers.set(event.pointerId, event.clientX);
    if (mode === 'pinch' && pointers.size === 2) {
      const currentPinch = pinch();
      on.link().pan((previousPinch.middle - currentPinch.middle) * perPixel());
      on.link().zoom(previousPinch.width / currentPinch.width, on.time(currentPinch.middle));
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
      on.link().pan(-distance * perPixel());
    } else if (mode === 'select') {
      on.link().select(start.time, on.time(event.clientX));
    } else if (mode === 'border') {
      on.drag(on.time(event.clientX));
    }
    start.last = event.clientX;
  });

  const handleUp = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (mode === 'pinch') {
      if (!pointers.size) mode = null;
      return;
    }
    if (mode === 'press' && event.type === 'pointerup') on.seek(on.time(event.clientX), event);
    if (mode === 'select') on.selected();
    if (mode === 'border') on.release();
    if (mode === 'pan' && performance.now() - start.moveTime < 60 && !matchMedia('(prefers-reduced-motion: reduce)').matches) glide(start.speed);
    mode = null;
  };
  stage.addEventListener('pointerup', handleUp);
  stage.addEventListener('pointercancel', handleUp);
  stage.addEventListener('dblclick', (event) => { if (!event.target.closest('button')) on.twice(event); });

  stage.addEventListener('wheel', (event) => {
    const pixelsPerUnit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      on.link().zoom(Math.exp(Math.min(Math.max(event.deltaY * pixelsPerUnit, -120), 120) * 0.004), on.time(event.clientX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      on.link().pan((event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) * pixelsPerUnit * perPixel());
    } else {
      return; // the page scrolls
    }
    event.preventDefault();
  }, {passive: false});
};
