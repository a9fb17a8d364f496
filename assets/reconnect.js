// Says that the connection to the server is lost, and asks before the page is loaded again. Gradio answers no press after
// that, asks every two seconds for the identity of the server, and loads the page as soon as there is an answer. All
// inputs and results would go without a word, such as after a computer has slept. So this script keeps the answer back.
{
  const LOST = 'The connection to the server is lost. The page keeps trying; until then its buttons do nothing.';
  const BACK = 'The server answers again. This page must be loaded again to go on: copy first what you need, as your inputs and results that are not under “Earlier runs” will be gone.';
  const {fetch} = window;
  let isBack = false;
  let notice = null;

  const show = (sentence, ...buttons) => {
    if (!notice?.isConnected) {
      notice = document.createElement('div');
      notice.className = 'connection';
      notice.setAttribute('role', 'alert');
      document.querySelector('.gradio-container')?.append(notice);
      for (const button of document.querySelectorAll('.toast-close')) button.click(); // Gradio's message says less
    }
    if (notice.firstChild?.textContent === sentence) return;
    const paragraph = document.createElement('p');
    paragraph.textContent = sentence;
    notice.replaceChildren(paragraph, ...buttons);
  };

  const askToLoad = () => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = 'Load the page again';
    button.addEventListener('click', () => location.reload());
    show(BACK, button);
  };

  window.fetch = async (...request) => {
    const address = String(request[0]?.url || request[0]);
    if (!/\/app_id\/?$/.test(address)) return fetch(...request);
    if (!isBack) {
      try { isBack = (await fetch(...request)).ok; } catch { /* the server does not answer yet */ }
      if (isBack) askToLoad(); else show(LOST);
    }
    throw new TypeError('the visitor loads the page again');
  };
}
