// Checks that the links, scripts and images of every page lead to an existing page, anchor or file.
// Links to other hosts are not requested.

import path from 'node:path';

/**
 * Returns each broken link with its page. `pages` maps the path of each page in the portal to its
 * HTML; `files` are the paths of all other files, whose content is not checked.
 */
export function findBrokenLinks(pages: ReadonlyMap<string, string>, files: ReadonlySet<string>): string[] {
  const anchorsOfPages = new Map(
    [...pages].map(([name, html]) => [
      name,
      new Set(Array.from(html.matchAll(/\sid="([^"]+)"/g), (match) => match[1] ?? '')),
    ]),
  );
  const brokenLinks: string[] = [];
  for (const [name, html] of pages) {
    for (const [, href = ''] of html.matchAll(/<(?:a|link)\b[^>]*?\shref="([^"]*)"/g)) {
      if (/^[a-z][a-z0-9+.-]*:/i.test(href)) continue;
      const [file = '', anchor] = unescapeHtml(href).split('#');
      const target =
        file === '' ? name : path.posix.normalize(path.posix.join(path.posix.dirname(name), file));
      // Undefined for `files`: the reference pages among them create their anchors at run time.
      const anchors = anchorsOfPages.get(target);
      if (anchors === undefined && !files.has(target)) brokenLinks.push(`${name}: ${href} leads to no page`);
      else if (anchor !== undefined && anchors?.has(anchor) === false)
        brokenLinks.push(`${name}: ${href} names no heading of ${target}`);
    }
    for (const [, source = ''] of html.matchAll(/<(?:script|img)\b[^>]*?\ssrc="([^"]*)"/g)) {
      const target = path.posix.normalize(path.posix.join(path.posix.dirname(name), source));
      if (!files.has(target)) brokenLinks.push(`${name}: ${source} is no file of the portal`);
    }
  }
  return brokenLinks;
}

/** Addresses in our pages contain no other entities. */
function unescapeHtml(text: string): string {
  return text.replaceAll('&amp;', '&').replaceAll('&quot;', '"');
}
