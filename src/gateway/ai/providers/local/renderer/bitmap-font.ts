// 5×7 bitmap font for text in generated images and videos.
import { paintRectangle, type Canvas, type Color } from './canvas.ts';

// Seven rows from the top, each a base-32 digit whose five bits are the dots.
const glyphs: Record<string, string> = {
  A: 'ehhvhhh',
  B: 'uhhuhhu',
  C: 'ehggghe',
  D: 'uhhhhhu',
  E: 'vgguggv',
  F: 'vgguggg',
  G: 'ehgnhhf',
  H: 'hhhvhhh',
  I: 'e44444e',
  J: '72222ic',
  K: 'hikokih',
  L: 'ggggggv',
  M: 'hrllhhh',
  N: 'hpljhhh',
  O: 'ehhhhhe',
  P: 'uhhuggg',
  Q: 'ehhhlid',
  R: 'uhhukih',
  S: 'fgge11u',
  T: 'v444444',
  U: 'hhhhhhe',
  V: 'hhhhha4',
  W: 'hhhllla',
  X: 'hha4ahh',
  Y: 'hha4444',
  Z: 'v1248gv',
  0: 'ehjlphe',
  1: '4c4444e',
  2: 'eh1248v',
  3: 'v2421he',
  4: '26aiv22',
  5: 'vgu11he',
  6: '68guhhe',
  7: 'v124888',
  8: 'ehhehhe',
  9: 'ehhf12c',
  '.': '00000cc',
  ',': '0000c48',
  '!': '4444404',
  '?': 'eh12404',
  '-': '000e000',
  '/': '01248g0',
  ':': '0cc0cc0',
  "'": 'c480000',
  '(': '2488842',
  ')': '8422248',
  ' ': '0000000',
};

// Five dots and a gap.
const advance = 6;

/** The text in capitals without accents; characters without a glyph become spaces. */
function toGlyphs(text: string): string {
  const plainText = text.normalize('NFKD').replace(/\p{M}/gu, '').replaceAll('’', "'").toUpperCase();
  return [...plainText]
    .map((letter) => (glyphs[letter] === undefined ? ' ' : letter))
    .join('')
    .replace(/ +/g, ' ')
    .trim();
}

/** The width of a line in dots. */
export function lineWidth(line: string): number {
  return Math.max(line.length * advance - 1, 0);
}

/** Paints one line from its top left dot at x and y; a dot is a square of `scale` pixels. */
export function paintLine(
  canvas: Canvas,
  line: string,
  { x, y, scale, color, opacity }: { x: number; y: number; scale: number; color: Color; opacity: number },
): void {
  for (const [position, letter] of [...line].entries()) {
    for (const [row, digit] of [...(glyphs[letter] ?? '')].entries()) {
      const dots = Number.parseInt(digit, 32);
      for (let column = 0; column < 5; column += 1) {
        if (((dots >> (4 - column)) & 1) === 0) continue;
        const dotX = x + (position * advance + column) * scale;
        paintRectangle(
          canvas,
          { left: dotX, top: y + row * scale, right: dotX + scale, bottom: y + (row + 1) * scale },
          { color, opacity },
        );
      }
    }
  }
}

/** Breaks the text into lines of the font; text beyond the last line is cut with an ellipsis. */
export function wrapLines(
  text: string,
  { maxDots, maxLines }: { maxDots: number; maxLines: number },
): string[] {
  const maxLetters = Math.max(Math.floor((maxDots + 1) / advance), 4);
  const lines: string[] = [];
  for (const word of toGlyphs(text).split(' ')) {
    const lastLine = lines.at(-1);
    if (lastLine !== undefined && lastLine.length + 1 + word.length <= maxLetters)
      lines[lines.length - 1] = `${lastLine} ${word}`;
    else lines.push(word.slice(0, maxLetters));
  }
  if (lines.length <= maxLines) return lines.filter((line) => line !== '');
  return lines
    .slice(0, maxLines)
    .map((line, index) => (index < maxLines - 1 ? line : `${line.slice(0, maxLetters - 3)}...`));
}
