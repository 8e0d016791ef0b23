// Text of a model as a page shows it: the little of Markdown that models write most (paragraphs, lists, headings, code,
// emphasis, links), made into elements. Whatever is not understood stays as it was written.
import { h } from './elements.ts';

/** Never throws, also for text that has just begun to come. */
export function prose(text: string): Node[] {
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  const blocks: Node[] = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at] ?? '';
    const fence = /^\s*(```+|~~~+)\s*([\w+-]*)/.exec(line);
    if (fence !== null) {
      const body: string[] = [];
      for (at += 1; at < lines.length && !(lines[at] ?? '').trimStart().startsWith(fence[1] ?? '```'); at += 1) body.push(lines[at] ?? '');
      at += 1;
      blocks.push(h('pre', { tabindex: '0' }, h('code', {}, body.join('\n'))));
      continue;
    }
    const heading = /^(#{1,6})\s+(.*)/.exec(line);
    if (heading !== null) {
      blocks.push(h('p', { class: 'heading' }, inline(heading[2] ?? '')));
      at += 1;
      continue;
    }
    const marker = listMarker(line);
    if (marker !== null) {
      const items: HTMLElement[] = [];
      for (; at < lines.length && listMarker(lines[at] ?? '')?.isOrdered === marker.isOrdered; at += 1) {
        const { rest } = listMarker(lines[at] ?? '') ?? { rest: '' };
        items.push(h('li', {}, inline(rest)));
      }
      blocks.push(marker.isOrdered ? h('ol', { start: marker.start }, items) : h('ul', {}, items));
      continue;
    }
    if (line.trim() === '') {
      at += 1;
      continue;
    }
    const paragraph: Node[] = [];
    for (; at < lines.length && isPlain(lines[at] ?? ''); at += 1) {
      if (paragraph.length > 0) paragraph.push(h('br'));
      paragraph.push(...inline(lines[at] ?? ''));
    }
    blocks.push(h('p', {}, paragraph));
  }
  return blocks;
}

function isPlain(line: string): boolean {
  return line.trim() !== '' && !/^\s*(?:```|~~~)/.test(line) && !/^#{1,6}\s/.test(line) && listMarker(line) === null;
}

function listMarker(line: string): { isOrdered: boolean; start: number; rest: string } | null {
  const found = /^\s*(?:([-*+])|(\d{1,6})[.)])\s+(.*)/.exec(line);
  return found === null ? null : { isOrdered: found[1] === undefined, start: Number(found[2] ?? 1), rest: found[3] ?? '' };
}

// Bounded, so that no text can make the page search for ever.
const spans = /`([^`\n]{1,2000})`|\*\*([^*\n]{1,2000})\*\*|(?<![\w*])\*([^*\s][^*\n]{0,2000})\*(?!\w)|\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s()]{1,2000})\)|(https?:\/\/[^\s<>"')\]]{1,2000})/g;

function inline(text: string): Node[] {
  const nodes: Node[] = [];
  let done = 0;
  for (const match of text.matchAll(spans)) {
    if (match.index > done) nodes.push(document.createTextNode(text.slice(done, match.index)));
    const [whole, code, strong, emphasis, label, target, bare] = match;
    if (code !== undefined) nodes.push(h('code', {}, code));
    else if (strong !== undefined) nodes.push(h('strong', {}, strong));
    else if (emphasis !== undefined) nodes.push(h('em', {}, emphasis));
    else nodes.push(link(target ?? bare ?? whole, label ?? bare ?? whole));
    done = match.index + whole.length;
  }
  if (done < text.length) nodes.push(document.createTextNode(text.slice(done)));
  return nodes;
}

// What a model wrote leads elsewhere; that page must learn nothing of this one.
function link(target: string, label: string): HTMLElement {
  return h('a', { href: target, target: '_blank', rel: 'noopener noreferrer' }, label);
}
