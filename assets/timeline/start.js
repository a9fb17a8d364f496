// Loads the timeline's modules from the server and lets them draw into the element of the page.
const tools = {element, props, watch, open: (key) => trigger('open', {key})};
import(new URL('timeline/scripts/app.js', document.baseURI)).then((module) => module.open(tools)).catch((error) => {
  element.textContent = 'The scripts of the timeline could not be loaded; reload the page.';
  throw error;
});
