// What fingers, mouse and wheel do on the timeline: press to go there, drag to select a stretch (mouse) or to pan (finger,
// or mouse on the ruler), two fingers to zoom, drag a border to correct a time.
const STILL = 5; // pixels that a press may move
const FRICTION = 0.94; // of the speed of a fling that is left after each frame

// `on` has: link, width(), time(clientX), hit(event) -> {pans, border}, seek(time), grab(border), drag(time), release().
export const gestures = (stage, on) => {
  const pointers = new Map(); // id -> clientX
  let mode = null; // press, pan, select, border, pinch
  let [begun, hit, apart, fling] = [null, null, null, 0];

  const perPixel = () => (on.link().to - on.link().from) / on.width();

  const glide = (speed) => {
    const mine = fling = fling + 1;
    const step = () => {
      if (mine !== fling || Math.abs(speed) < 0.4) return;
      on.link().pan(-speed * perPixel());
      speed *= FRICTION;
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  };

  const pinch = () => {
    const [one, other] = [...pointers.values()];
    return {middle: (one + other) / 2, width: Math.max(Math.abs(one - other), 20)};
  };

  stage.addEventListener('pointerdown', (event) => {
    if (event.target.closest('button') || event.button > 1) return;
    fling += 1;
    pointers.set(event.pointerId, event.clientX);
    stage.setPointerCapture(event.pointerId);
    if (pointers.size === 2) {
      if (mode === 'border') on.release();
      mode = 'pinch';
      apart = pinch();
      return;
    }
    if (pointers.size > 2) return;
    hit = on.hit(event);
    begun = {x: event.clientX, time: on.time(event.clientX), at: performance.now(), last: event.clientX, speed: 0};
    mode = hit.border ? 'border' : event.button === 1 ? 'pan' : 'press';
    if (mode === 'border') on.grab(hit.border);
    if (event.button === 1) event.preventDefault();
  });

  stage.addEventListener('pointermove', (event) => {
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType === 'mouse') {
        const over = on.hit(event);
        stage.style.cursor = over.border ? 'col-resize' : over.pans ? 'grab' : 'text';
        on.hover(event);
      }
      return;
    }
    pointers.set(event.pointerId, event.clientX);
    if (mode === 'pinch' && pointers.size === 2) {
      const now = pinch();
      on.link().pan((apart.middle - now.middle) * perPixel());
      on.link().zoom(apart.width / now.width, on.time(now.middle));
      apart = now;
      return;
    }
    if (mode === 'press' && Math.abs(event.clientX - begun.x) > STILL) {
      mode = event.pointerType === 'mouse' && !hit.pans ? 'select' : 'pan';
    }
    if (mode === 'pan') {
      const moved = event.clientX - begun.last;
      begun.speed = 0.7 * moved + 0.3 * begun.speed;
      begun.at = performance.now();
      on.link().pan(-moved * perPixel());
    } else if (mode === 'select') {
      on.link().select(begun.time, on.time(event.clientX));
    } else if (mode === 'border') {
      on.drag(on.time(event.clientX));
    }
    begun.last = event.clientX;
  });

  const up = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (mode === 'pinch') {
      if (!pointers.size) mode = null;
      return;
    }
    if (mode === 'press' && event.type === 'pointerup') on.seek(on.time(event.clientX), event);
    if (mode === 'select') on.selected();
    if (mode === 'border') on.release();
    if (mode === 'pan' && performance.now() - begun.at < 60 && !matchMedia('(prefers-reduced-motion: reduce)').matches) glide(begun.speed);
    mode = null;
  };
  stage.addEventListener('pointerup', up);
  stage.addEventListener('pointercancel', up);
  stage.addEventListener('dblclick', (event) => { if (!event.target.closest('button')) on.twice(event); });

  stage.addEventListener('wheel', (event) => {
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      on.link().zoom(Math.exp(Math.min(Math.max(event.deltaY * unit, -120), 120) * 0.004), on.time(event.clientX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      on.link().pan((event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) * unit * perPixel());
    } else {
      return; // the page scrolls
    }
    event.preventDefault();
  }, {passive: false});
};
