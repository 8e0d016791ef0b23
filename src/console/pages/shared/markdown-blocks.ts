// Writes lines of Markdown into an element as blocks: paragraphs, lists, headings, tables, code. The
// last line may be a preview, which is discarded when more of it has arrived.
import { h, showControls, showOverrides } from './elements.ts';
import { mayBecomeAlignments, tableAlignments, tableCells, type Alignment } from './markdown-tables.ts';

export interface Blocks {
  addLine(line: string): void;
  /** Adds the rest of a line whose start is final. */
  addRest(rest: string): void;
  /** Nodes that `write` adds stay until `discardPreview`. */
  preview(write: () => void): void;
  discardPreview(): void;
  clear(): void;
}

type State =
  | { mode: 'none' }
  | { mode: 'paragraph'; element: HTMLElement; lastLine: LastLine | null }
  | { mode: 'table'; body: HTMLElement; alignments: readonly Alignment[] }
  | { mode: 'list'; element: HTMLElement; isOrdered: boolean }
  | { mode: 'fence'; element: HTMLElement; marker: string }
  | { mode: 'plain'; element: HTMLElement };

/** The last line of a paragraph, which the next line may turn into the titles of a table. */
interface LastLine {
  cells: readonly string[];
  nodes: readonly ChildNode[];
}

// Above this number the text is shown without Markdown: more elements make the page slow.
const maxElements = 20_000;

/** The position in the text that is being written. */
interface Writer {
  readonly root: HTMLElement;
  readonly output: Output;
  state: State;
  /** The parent of the rest of an unfinished line. */
  lineParent: HTMLElement;
  isPreview: boolean;
}

export function createBlocks(root: HTMLElement): Blocks {
  const output = createOutput();
  const writer: Writer = { root, output, state: { mode: 'none' }, lineParent: root, isPreview: false };
  return {
    addLine: (line) => addLine(writer, line),
    addRest: (rest) => addRest(writer, rest),
    preview(write) {
      const { state, lineParent } = writer;
      output.startPreview();
      writer.isPreview = true;
      write();
      Object.assign(writer, { state, lineParent, isPreview: false });
    },
    discardPreview: output.discardPreview,
    clear() {
      root.replaceChildren();
      output.reset();
      writer.state = { mode: 'none' };
      writer.lineParent = root;
    },
  };
}

function addInline(writer: Writer, parent: HTMLElement, line: string): void {
  writer.lineParent = parent;
  writer.output.addInline(parent, line);
}

function addLine(writer: Writer, line: string): void {
  const { root, output, state } = writer;
  if (state.mode === 'fence') {
    if (line.trimStart().startsWith(state.marker)) writer.state = { mode: 'none' };
    else output.addText(state.element, line, showControls);
    return;
  }
  if (output.isFull()) return addPlain(writer, line);
  if (addTableLine(writer, line)) return;
  const fence = /^\s*(```+|~~~+)/.exec(line);
  const heading = /^(#{1,6})\s+(.*)/.exec(line);
  const marker = listMarker(line);
  if (fence !== null) openFence(writer, fence[1] ?? '```');
  else if (heading !== null) {
    addInline(writer, output.add(root, h('p', { class: 'heading' })), heading[2] ?? '');
    writer.state = { mode: 'none' };
  } else if (marker !== null) addItem(writer, marker);
  else if (line.trim() === '') writer.state = { mode: 'none' };
  else addParagraphLine(writer, line);
}

function addRest(writer: Writer, rest: string): void {
  const { output, state, lineParent } = writer;
  if (state.mode === 'fence') output.add(state.element, text(rest, showControls));
  else addInline(writer, lineParent, rest);
  // A line of several pieces is too long for the titles of a table.
  if (state.mode === 'paragraph') state.lastLine = null;
}

/** Whether the line belongs to a table. */
function addTableLine(writer: Writer, line: string): boolean {
  const { state } = writer;
  if (state.mode === 'table') {
    const cells = tableCells(line);
    if (cells === null) return false;
    addRow(writer, { parent: state.body, tag: 'td', cells, alignments: state.alignments });
    return true;
  }
  if (state.mode !== 'paragraph' || state.lastLine === null) return false;
  // In a preview the titles stay a paragraph: discarding it could not restore nodes that were removed.
  if (writer.isPreview) return mayBecomeAlignments(line);
  const alignments = tableAlignments(line);
  if (alignments?.length !== state.lastLine.cells.length) return false;
  openTable(writer, { paragraph: state.element, titles: state.lastLine, alignments });
  return true;
}

function openTable(
  writer: Writer,
  {
    paragraph,
    titles,
    alignments,
  }: { paragraph: HTMLElement; titles: LastLine; alignments: readonly Alignment[] },
): void {
  const { root, output } = writer;
  for (const node of titles.nodes) node.remove();
  if (!paragraph.hasChildNodes()) paragraph.remove();
  const box = output.add(
    root,
    h('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table' }),
  );
  const table = output.add(box, h('table'));
  addRow(writer, { parent: output.add(table, h('thead')), tag: 'th', cells: titles.cells, alignments });
  writer.state = { mode: 'table', body: output.add(table, h('tbody')), alignments };
}

interface Row {
  parent: HTMLElement;
  tag: 'th' | 'td';
  /** Missing cells are empty; cells beyond the titles are left out. */
  cells: readonly string[];
  alignments: readonly Alignment[];
}

function addRow(writer: Writer, { parent, tag, cells, alignments }: Row): void {
  const row = writer.output.add(parent, h('tr'));
  for (const [index, alignment] of alignments.entries())
    addInline(writer, writer.output.add(row, h(tag, { class: alignment })), cells[index] ?? '');
}

function openFence(writer: Writer, marker: string): void {
  const { root, output } = writer;
  const element = output.add(output.add(root, h('pre', { tabindex: '0' })), h('code'));
  writer.state = { mode: 'fence', element, marker };
}

function addItem(writer: Writer, { isOrdered, start, rest }: Marker): void {
  const { root, output, state } = writer;
  const element =
    state.mode === 'list' && state.isOrdered === isOrdered
      ? state.element
      : output.add(root, isOrdered ? h('ol', { start }) : h('ul'));
  addInline(writer, output.add(element, h('li')), rest);
  writer.state = { mode: 'list', element, isOrdered };
}

function addParagraphLine(writer: Writer, line: string): void {
  const { root, output, state } = writer;
  const element = state.mode === 'paragraph' ? state.element : output.add(root, h('p'));
  const nodeBefore = element.lastChild;
  if (nodeBefore !== null) output.add(element, h('br'));
  addInline(writer, element, line);
  const cells = tableCells(line);
  const lastLine = cells === null ? null : { cells, nodes: nodesAfter(element, nodeBefore) };
  writer.state = { mode: 'paragraph', element, lastLine };
}

function addPlain(writer: Writer, line: string): void {
  const { root, output, state } = writer;
  const element = state.mode === 'plain' ? state.element : output.add(root, h('p', { class: 'verbatim' }));
  writer.state = { mode: 'plain', element };
  writer.lineParent = element;
  output.addText(element, line, showOverrides);
}

type Output = ReturnType<typeof createOutput>;

/** Appends nodes, counts them, and can remove those of a preview. */
function createOutput() {
  let elementCount = 0;
  let preview: { nodes: Set<ChildNode>; elementsBefore: number } | null = null;

  function add<Child extends ChildNode>(parent: HTMLElement, child: Child): Child {
    parent.append(child);
    elementCount += 1;
    preview?.nodes.add(child);
    return child;
  }

  return {
    add,
    isFull: () => elementCount >= maxElements,
    /** Adds a line of its own. */
    addText(parent: HTMLElement, line: string, show: (content: string) => string): void {
      add(parent, text(parent.hasChildNodes() ? `\n${line}` : line, show));
    },
    addInline(parent: HTMLElement, line: string): void {
      let position = 0;
      for (const match of line.matchAll(spans)) {
        if (elementCount >= maxElements) break;
        if (match.index > position) add(parent, text(line.slice(position, match.index), showOverrides));
        add(parent, spanOf(match));
        position = match.index + match[0].length;
      }
      if (position < line.length) add(parent, text(line.slice(position), showOverrides));
    },
    startPreview(): void {
      preview = { nodes: new Set(), elementsBefore: elementCount };
    },
    discardPreview(): void {
      if (preview === null) return;
      for (const node of preview.nodes) node.remove();
      elementCount = preview.elementsBefore;
      preview = null;
    },
    reset(): void {
      elementCount = 0;
      preview = null;
    },
  };
}

const text = (content: string, show: (content: string) => string): Text =>
  document.createTextNode(show(content));

function nodesAfter(parent: HTMLElement, child: ChildNode | null): ChildNode[] {
  const nodes: ChildNode[] = [];
  let node = child === null ? parent.firstChild : child.nextSibling;
  for (; node !== null; node = node.nextSibling) nodes.push(node);
  return nodes;
}

interface Marker {
  isOrdered: boolean;
  start: number;
  rest: string;
}

function listMarker(line: string): Marker | null {
  const match = /^\s*(?:([-*+])|(\d{1,6})[.)])\s+(.*)/.exec(line);
  return match === null
    ? null
    : { isOrdered: match[1] === undefined, start: Number(match[2] ?? 1), rest: match[3] ?? '' };
}

// Each repetition is bounded and stops at the character that starts the next match, so the search
// is linear.
const spans =
  /`([^`\n]{1,2000})`|\*\*([^*\n]{1,2000})\*\*|(?<![\w*])\*([^*\s][^*\n]{0,2000})\*(?!\w)|\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s()]{1,2000})\)|(https?:\/\/[^\s<>"')\]]{1,2000})/g;

function spanOf(match: RegExpExecArray): HTMLElement {
  const [matchedText, code, strong, emphasis, label, target, bareUrl] = match;
  if (code !== undefined) return h('code', {}, showControls(code));
  if (strong !== undefined) return h('strong', {}, showOverrides(strong));
  if (emphasis !== undefined) return h('em', {}, showOverrides(emphasis));
  return link(target ?? bareUrl ?? matchedText, label ?? bareUrl ?? matchedText);
}

// `noopener noreferrer` hides this page from the linked one. The title shows the real address,
// since the label may differ.
function link(target: string, label: string): HTMLElement {
  return h(
    'a',
    { href: target, title: showControls(target), target: '_blank', rel: 'noopener noreferrer' },
    showControls(label),
  );
}
