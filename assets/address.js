// The tab in the page's address: `#parity` opens Parity, the address follows the tab, and Back returns to the last one.
// What stands behind a `?` in the address belongs to the tab itself. Ctrl and Enter presses the tab's main button.
window.workbenchAddress = (() => {
  const TITLE = document.title || 'Speech Workbench';
  const MAIN = '.go button.primary, .composer .send'; // begins the main job of a tab
  let following = false; // whether a tab is opened because the address says so

  const named = (hash) => hash.slice(1).split('?')[0];
  const tabs = () => [...document.querySelectorAll('#tabs button[role="tab"][data-tab-id]')];
  const shown = (each) => each.checkVisibility({visibilityProperty: true});

  const show = (tab) => { document.title = tab ? `${tab.textContent.trim()} · ${TITLE}` : TITLE; };

  // Opens the tab that the address names; the first one for an address that names none.
  const open = (first = false) => {
    const wanted = named(location.hash);
    const tab = tabs().find((each) => each.dataset.tabId === wanted) || (first ? null : tabs()[0]);
    if (!tab) return;
    following = true;
    try { tab.click(); } finally { following = false; }
    show(wanted ? tab : null);
  };

  document.addEventListener('click', (event) => {
    const tab = event.target.closest?.('#tabs button[role="tab"][data-tab-id]');
    if (!tab || following) return;
    show(tab);
    const before = named(location.hash) || tabs()[0]?.dataset.tabId;
    if (tab.dataset.tabId !== before) history.pushState(null, '', `#${tab.dataset.tabId}`);
  }, true); // before the tab itself hears it
  addEventListener('popstate', () => open());

  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey) || event.defaultPrevented) return;
    const main = [...document.querySelectorAll(MAIN)].find((each) => shown(each) && !each.disabled);
    if (!main) return;
    event.preventDefault();
    event.stopPropagation();
    main.click();
  }, true); // before a text field takes it for a new line

  // Leaving in the middle of a run ends it, so the browser asks first. The button of a tab that is not shown counts too.
  addEventListener('beforeunload', (event) => {
    const stops = [...document.querySelectorAll('.go button.stop, .composer .send.stopping')];
    if (stops.some((each) => getComputedStyle(each).display !== 'none')) event.preventDefault();
  });

  return {open, named};
})();
