// Two fingers on a trackpad zoom. Most browsers send a wheel event with Ctrl for them; Safari has events of its own.
// `zoom` gets the factor of the time in view, and the event. The page itself does not zoom.
export const listenToTrackpad = (element, zoom) => {
  let previousScale = 1;
  element.addEventListener('gesturestart', (event) => {
    event.preventDefault();
    previousScale = event.scale;
  });
  element.addEventListener('gesturechange', (event) => {
    event.preventDefault();
    zoom(previousScale / event.scale, event);
    previousScale = event.scale;
  });
};
