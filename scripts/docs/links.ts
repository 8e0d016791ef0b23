// Checks that every link of every page leads to an existing page and anchor. Links to other hosts
// are not requested.

import path from 'node:path';

/**
 * Returns each broken link with its page. `pages` have their paths in the portal; of other `files`
 * only the names are known.
 */
export function findBrokenLinks(pages: ReadonlyMap<string, string>, files: ReadonlySet<string>): string[] {
  const anchors = new Map(
    [...pages].map(([name, html]) => [
      name,
      new Set(Array.from(html.matchAll(/\sid="([^"]+)"/g), (match) => match[1] ?? '')),
    ]),
  );
  const brokenLinks: string[] = [];
  for (const [name, html] of pages) {
    for (const [, href = ''] of html.matchAll(/<(?:a|link)\b[^>]*?\shref="([^"]*)"/g)) {
      if (/^[a-z][a-z0-9+.-]*:/i.test(href)) continue;
      const [file = '', anchor] = decode(href).split('#');
      const target =
        file === '' ? name : path.posix.normalize(path.posix.join(path.posix.dirname(name), file));
      if (!pages.has(target) && !files.has(target)) brokenLinks.push(`${name}: ${href} leads to no page`);
      // Reference pages create their anchors at run time.
      else if (anchor !== undefined && pages.has(target) && !anchors.get(target)?.has(anchor))
        brokenLinks.push(`${name}: ${href} names no heading of ${target}`);
    }
    for (const [, source = ''] of html.matchAll(/<(?:script|img)\b[^>]*?\ssrc="([^"]*)"/g)) {
      const target = path.posix.normalize(path.posix.join(path.posix.dirname(name), source));
      if (!files.has(target)) brokenLinks.push(`${name}: ${source} is no file of the portal`);
    }
  }
  return brokenLinks;
}

function decode(href: string): string {
  return href.replaceAll('&amp;', '&').replaceAll('&quot;', '"');
}
