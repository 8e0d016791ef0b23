// Small rules of text that several pages share: what is written into HTML, and how a heading becomes an anchor.

export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

/** The anchor that code hosts give a heading too, so that a link works on the portal and beside the source. */
export function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/<[^>]+>/g, '')
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replaceAll(/\s/g, '-');
}
