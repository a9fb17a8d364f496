// How the page scrolls by itself: in one step for visitors who want less motion.
window.workbenchScrolling = {
  behavior: () => (matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth'),
};
