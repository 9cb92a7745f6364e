// Builds the views and shows everything; the longest stall is chosen first.
buildViews();
applyFilter();
pick(stalls.reduce((max, s) => (s.duration > (max?.duration ?? -1) ? s : max), null));
document.documentElement.dataset.ready = "yes";
