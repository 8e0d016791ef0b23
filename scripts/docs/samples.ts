// Code samples come from examples/, whose programs are type-checked and run by tests. A guide shows a part
// of a program under a marker; these functions compare and update that part:
//
//   <!-- example: first-five-minutes.ts#stream -->   before a fenced block: the region `stream` of that file
//   <!-- example: openai-client.ts -->               the whole file
//
// A region begins at `// #region stream` (or `# #region stream`) and ends at the next `#endregion`.

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

const markedSample = /<!-- example: ([\w./-]+?)(?:#([\w-]+))? -->\n```(\w+)\n([\s\S]*?)\n```/g;

export interface SampleMismatch {
  line: number;
  message: string;
}

/** The samples of a guide that differ from their examples. */
export function checkSamples(markdown: string, examples: string): SampleMismatch[] {
  const mismatches: SampleMismatch[] = [];
  const lineAt = (index: number) => markdown.slice(0, index).split('\n').length;
  const blocks = [...markdown.matchAll(markedSample)];
  for (const match of blocks) {
    const [, file = '', region, , current = ''] = match;
    try {
      const expected = readSample(path.join(examples, file), region);
      if (expected !== current)
        mismatches.push({
          line: lineAt(match.index),
          message: `the sample differs from ${placeOf(file, region)}; "npm run docs -- --update" rewrites it`,
        });
    } catch (error) {
      mismatches.push({ line: lineAt(match.index), message: (error as Error).message });
    }
  }
  const places = new Set(blocks.map(({ index }) => index));
  for (const { index } of markdown.matchAll(/<!-- example:/g))
    if (!places.has(index))
      mismatches.push({
        line: lineAt(index),
        message: 'the marker of an example must be on the line before a fenced block',
      });
  return mismatches;
}

function placeOf(file: string, region: string | undefined): string {
  return region === undefined ? file : `${file}#${region}`;
}

/** The guide with every sample rewritten from its example. */
export function updateSamples(markdown: string, examples: string): string {
  return markdown.replaceAll(
    markedSample,
    (_whole, file: string, region: string | undefined, language: string) => {
      const sample = readSample(path.join(examples, file), region);
      return `<!-- example: ${placeOf(file, region)} -->\n\`\`\`${language}\n${sample}\n\`\`\``;
    },
  );
}

/**
 * A file of examples/, or a region of it without its indentation. Throws when it does not exist.
 */
export function readSample(file: string, region?: string): string {
  const name = path.basename(file);
  if (!existsSync(file)) throw new Error(`there is no example ${name}`);
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  const isMark = (line: string) => /^\s*(?:\/\/|#) #(?:region|endregion)\b/.test(line);
  if (region === undefined) return lines.filter((line) => !isMark(line)).join('\n');
  const start = lines.findIndex((line) => new RegExp(`^\\s*(?://|#) #region ${region}$`).test(line));
  if (start < 0) throw new Error(`the example ${name} has no region "${region}"`);
  const length = lines.slice(start + 1).findIndex((line) => /^\s*(?:\/\/|#) #endregion\b/.test(line));
  if (length < 0) throw new Error(`the region "${region}" of ${name} does not end`);
  const sampleLines = lines.slice(start + 1, start + 1 + length).filter((line) => !isMark(line));
  const indent = Math.min(
    ...sampleLines.filter((line) => line.trim() !== '').map((line) => line.length - line.trimStart().length),
  );
  return sampleLines.map((line) => line.slice(indent)).join('\n');
}
