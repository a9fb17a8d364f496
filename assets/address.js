// The tab in the page's address: `#parity` opens Parity, the address follows the tab, and Back returns to the last one.
// The part after a `?` belongs to the tab itself. Ctrl and Enter press the tab's main button.
window.workbenchAddress = (() => {
  const TITLE = document.title || 'Speech Workbench';
  const MAIN = '.go button.primary, .composer .send'; // starts the run of a tab
  let isFollowingAddress = false; // whether the script, not the visitor, is opening a tab

  const tabInHash = (hash) => hash.slice(1).split('?')[0];
  const tabs = () => [...document.querySelectorAll('#tabs button[role="tab"][data-tab-id]')];
  const isShown = (each) => each.checkVisibility({visibilityProperty: true});

  const setTitle = (tab) => { document.title = tab ? `${tab.textContent.trim()} · ${TITLE}` : TITLE; };

  // Opens the tab that the address names, else the first tab; on the first load, else none.
  const open = (isFirstLoad = false) => {
    const tabId = tabInHash(location.hash);
    const tab = tabs().find((each) => each.dataset.tabId === tabId) || (isFirstLoad ? null : tabs()[0]);
    if (!tab) return;
    isFollowingAddress = true;
    try { tab.click(); } finally { isFollowingAddress = false; }
    setTitle(tabId ? tab : null);
  };

  document.addEventListener('click', (event) => {
    const tab = event.target.closest?.('#tabs button[role="tab"][data-tab-id]');
    if (!tab || isFollowingAddress) return;
    setTitle(tab);
    const previousTab = tabInHash(location.hash) || tabs()[0]?.dataset.tabId;
    if (tab.dataset.tabId !== previousTab) history.pushState(null, '', `#${tab.dataset.tabId}`);
  }, true); // in the capture phase, before the handlers of the tab
  addEventListener('popstate', () => open());

  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey) || event.defaultPrevented) return;
    const mainButton = [...document.querySelectorAll(MAIN)].find((each) => isShown(each) && !each.disabled);
    if (!mainButton) return;
    event.preventDefault();
    event.stopPropagation();
    mainButton.click();
  }, true); // in the capture phase, before a text field inserts a new line

  // Leaving the page ends a run, so the browser asks first. A run in a hidden tab counts too.
  addEventListener('beforeunload', (event) => {
    const stopButtons = [...document.querySelectorAll('.go button.stop, .composer .send.stopping')];
    if (stopButtons.some((each) => getComputedStyle(each).display !== 'none')) event.preventDefault();
  });

  return {open, tabInHash};
})();
