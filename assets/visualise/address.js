// The state of the tab in the page's address, so that a link opens the same view: `#visualise?sample=…&view=…`.
const PREFIX = '#visualise';

// Returns the settings in an address, or null where the address is not one of this tab.
export const readAddress = (hash) => {
  if (hash !== PREFIX && !hash.startsWith(`${PREFIX}?`)) return null;
  return Object.fromEntries(new URLSearchParams(hash.slice(PREFIX.length + 1)));
};

const hasValue = ([, value]) => value !== null && value !== undefined && value !== '';
export const formatAddress = (settings) => `${PREFIX}?${new URLSearchParams(Object.entries(settings).filter(hasValue))}`;

export const writeAddress = (settings) => {
  history.replaceState(history.state, '', `${location.pathname}${location.search}${formatAddress(settings)}`);
};

// Removes the settings from the address when another tab opens.
export const clearAddress = () => {
  if (readAddress(location.hash)) history.replaceState(history.state, '', `${location.pathname}${location.search}`);
};
