// Screen readers take the page's language from its root. The page is in English, and Gradio names the browser's language.
(() => {
  const root = document.documentElement;
  const name = () => { if (root.lang !== 'en') root.lang = 'en'; };
  new MutationObserver(name).observe(root, {attributeFilter: ['lang']});
  name();
})();
