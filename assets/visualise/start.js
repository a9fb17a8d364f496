// Loads the Visualise tab's modules from the server and lets them draw into the element of the page.
const tools = {element, props, watch, restore: (state) => trigger('restore', state)};
import(new URL('visualise/scripts/app.js', document.baseURI)).then((module) => module.open(tools)).catch((error) => {
  element.textContent = 'The scripts of the Visualise tab could not be loaded; reload the page.';
  throw error;
});
