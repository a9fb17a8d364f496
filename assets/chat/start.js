// Loads the Chat tab's modules from the server and lets them draw into the element of the page.
import(new URL('chat/scripts/app.js', document.baseURI)).then((module) => module.open(element)).catch(() => {
  element.textContent = 'The scripts of the Chat tab could not be loaded; reload the page.';
});
