// Loads the live microphone from the server and lets it draw into the element of the page.
import(new URL('live/scripts/app.js', document.baseURI)).then((module) => module.open(element)).catch(() => {
  element.textContent = 'The scripts of the live microphone could not be loaded; reload the page.';
});
