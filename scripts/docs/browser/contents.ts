// In the list of the page's sections, marks the section that the reader sees.

export function followSections(): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>('.contents a')];
  const headings = links.map((link) => document.getElementById(decodeURIComponent(link.hash.slice(1))));
  if (links.length === 0) return;
  const mark = () => {
    // A section begins when its heading reaches the upper third of the screen.
    const current = headings.findLastIndex(
      (heading) => heading !== null && heading.getBoundingClientRect().top < innerHeight / 3,
    );
    for (const [index, link] of links.entries())
      if (index === current) link.setAttribute('aria-current', 'true');
      else link.removeAttribute('aria-current');
  };
  let isScheduled = false;
  document.addEventListener(
    'scroll',
    () => {
      if (isScheduled) return;
      isScheduled = true;
      requestAnimationFrame(() => {
        isScheduled = false;
        mark();
      });
    },
    { passive: true },
  );
  mark();
}
