// Renders the most common Markdown of models: paragraphs, lists, headings, tables, code, emphasis,
// links. Anything else stays plain text. Each line of a growing text is parsed once, so the work is
// linear in its length.
import { h } from './elements.ts';
import { createBlocks } from './markdown-blocks.ts';

export interface Markdown {
  /** Shows the text. Only the part after the last call's text is parsed. Never throws. */
  update(text: string): void;
}

// An unfinished line is parsed again with each piece; beyond this length its start is final.
const maxOpenLine = 8 * 1024;

export function createMarkdown(root: HTMLElement): Markdown {
  const blocks = createBlocks(root);
  let visibleText = '';
  /** The text before this index is final on the page. */
  let finishedLength = 0;
  let isMidLine = false;

  function write(piece: string): void {
    if (isMidLine) blocks.addRest(piece);
    else blocks.addLine(piece);
  }

  function finish(end: number, { isLineEnd }: { isLineEnd: boolean }): void {
    const piece = visibleText.slice(finishedLength, end);
    write(isLineEnd && piece.endsWith('\r') ? piece.slice(0, -1) : piece);
    isMidLine = !isLineEnd;
    finishedLength = isLineEnd ? end + 1 : end;
  }

  return {
    update(next) {
      blocks.discardPreview();
      if (!next.startsWith(visibleText)) {
        blocks.clear();
        finishedLength = 0;
        isMidLine = false;
      }
      visibleText = next;
      let lineEnd = visibleText.indexOf('\n', finishedLength);
      while (lineEnd >= 0) {
        finish(lineEnd, { isLineEnd: true });
        lineEnd = visibleText.indexOf('\n', finishedLength);
      }
      while (visibleText.length - finishedLength > maxOpenLine)
        finish(cutBefore(visibleText, finishedLength + maxOpenLine), { isLineEnd: false });
      const openLine = visibleText.slice(finishedLength);
      if (openLine !== '') blocks.preview(() => write(openLine));
    },
  };
}

/** For a text that does not grow. */
export function renderMarkdown(content: string): HTMLElement {
  const root = h('div', { class: 'text' });
  createMarkdown(root).update(content);
  return root;
}

// Avoids a cut within a surrogate pair.
function cutBefore(content: string, position: number): number {
  const unit = content.charCodeAt(position - 1);
  return unit >= 0xd800 && unit <= 0xdbff ? position - 1 : position;
}
