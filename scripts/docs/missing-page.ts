// The page that the server sends for an address of the portal without a page.

import type { NavigationGroup } from './layout.ts';
import { writePage } from './layout.ts';

export const missingPage = '404.html';

const body = `<h1>There is no page here</h1>
<p>The address may belong to another version. Search above, or begin with one of these pages:</p>
<ul>
<li><a href="index.html">All guides</a></li>
<li><a href="operations/index.html">All operations</a></li>
<li><a href="guides/error-codes.html">Error codes</a></li>
</ul>`;

/**
 * The links of the page are absolute, since the server sends it for addresses of any depth. So it works
 * on a server with the portal at `/docs/`, but not from a disk.
 */
export function writeMissingPage(navigation: readonly NavigationGroup[]): string {
  const page = writePage({ page: missingPage, title: 'Not found', headings: [], body, navigation });
  return page
    .replaceAll(/(\s(?:href|src)=")(?!#|data:)/g, '$1/docs/')
    .replace('data-root="./"', 'data-root="/docs/"');
}
