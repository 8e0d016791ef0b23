// The page of error codes, from the contract's list of codes and its text for each of them.

import type { Document } from '../generate/document.ts';

interface CodeText {
  status: number[];
  means: string;
  do: string;
}

const sourceFile = 'openapi/shared/schemas/ProblemCode.yaml';

const introduction = [
  'Every error of both servers has a `code`, made for programs: it never changes its meaning,',
  'and new ones may be added.',
  'The shape around it is in [errors](errors.md).',
  "An error of a model provider keeps the provider's own code where it has one.",
].join(' ');

/**
 * Returns Markdown, which is rendered and indexed like a guide. Throws for a code without a text.
 */
export function writeProblemCodes(documents: readonly Document[]): string {
  const schema = documents
    .map(({ components }) => components?.schemas?.['ProblemCode'])
    .find((candidate) => candidate !== undefined) as
    | { enum: string[]; 'x-codes'?: Record<string, CodeText> }
    | undefined;
  if (schema === undefined) throw new Error('no document has the list of problem codes');
  const texts = schema['x-codes'] ?? {};
  const undocumentedCodes = schema.enum.filter((code) => !isWhole(texts[code]));
  if (undocumentedCodes.length > 0)
    throw new Error(
      `these error codes have no text under x-codes in ${sourceFile}: ${undocumentedCodes.join(', ')}`,
    );
  const unknownCodes = Object.keys(texts).filter((code) => !schema.enum.includes(code));
  if (unknownCodes.length > 0)
    throw new Error(
      `x-codes in ${sourceFile} has texts for codes that there are not: ${unknownCodes.join(', ')}`,
    );
  const statuses = [...new Set(schema.enum.map((code) => texts[code]?.status[0] ?? 0))].sort(
    (a, b) => rankOf(a) - rankOf(b),
  );
  const parts = statuses.map((status) => {
    const codes = schema.enum.filter((code) => texts[code]?.status[0] === status);
    const entries = codes.map((code) => writeEntry(code, texts[code]));
    return `## ${status === 200 ? 'Within an answer' : status}\n${entries.join('\n')}`;
  });
  return `# Error codes\n${introduction}\n\n${parts.join('\n\n')}\n`;
}

// Errors inside successful answers (status 200) come last.
function rankOf(status: number): number {
  return status === 200 ? 1000 : status;
}

function isWhole(text: CodeText | undefined): boolean {
  return text !== undefined && text.status.length > 0 && text.means.trim() !== '' && text.do.trim() !== '';
}

function writeEntry(code: string, text: CodeText | undefined): string {
  const statusNote = (text?.status.length ?? 0) > 1 ? ` Its status is ${text?.status.join(', ')}.` : '';
  return `### ${code}\n${text?.means}${statusNote} **What to do:** ${text?.do}\n`;
}
