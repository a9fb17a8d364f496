// The state of the tab in the page's address, so that a link opens the same view: `#visualise?sample=…&view=…`.
const MARK = '#visualise';

// The settings of an address; null if it is not one of this tab.
export const readAddress = (hash) => {
  if (hash !== MARK && !hash.startsWith(`${MARK}?`)) return null;
  return Object.fromEntries(new URLSearchParams(hash.slice(MARK.length + 1)));
};

export const writeAddress = (settings) => {
  const given = Object.entries(settings).filter(([, value]) => value !== null && value !== undefined && value !== '');
  history.replaceState(history.state, '', `${location.pathname}${location.search}${MARK}?${new URLSearchParams(given)}`);
};

// Takes the settings away, for another tab.
export const clearAddress = () => {
  if (readAddress(location.hash)) history.replaceState(history.state, '', `${location.pathname}${location.search}`);
};
