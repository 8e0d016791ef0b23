// The page of error codes, from the contract's list of codes and its text for each of them.

import type { Document } from '../generate/document.ts';

/** An entry of `x-codes`. */
interface CodeText {
  /** All statuses that an error of this code may have. The first one decides the section of the page. */
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
  const undocumentedCodes = schema.enum.filter((code) => !isComplete(texts[code]));
  if (undocumentedCodes.length > 0)
    throw new Error(
      `these error codes have no text under x-codes in ${sourceFile}: ${undocumentedCodes.join(', ')}`,
    );
  const unknownCodes = Object.keys(texts).filter((code) => !schema.enum.includes(code));
  if (unknownCodes.length > 0)
    throw new Error(
      `x-codes in ${sourceFile} has texts for codes that do not exist: ${unknownCodes.join(', ')}`,
    );
  const firstStatuses = [...new Set(schema.enum.map((code) => texts[code]?.status[0] ?? 0))];
  const sections = firstStatuses
    .sort((a, b) => rankOf(a) - rankOf(b))
    .map((status) => {
      const codes = schema.enum.filter((code) => texts[code]?.status[0] === status);
      const entries = codes.map((code) => writeEntry(code, texts[code]));
      return `## ${status === okStatus ? 'Within an answer' : status}\n${entries.join('\n')}`;
    });
  return `# Error codes\n${introduction}\n\n${sections.join('\n\n')}\n`;
}

// An error within a successful answer, such as the error of a failed job. Its section comes last.
const okStatus = 200;

function rankOf(status: number): number {
  return status === okStatus ? Infinity : status;
}

function isComplete(text: CodeText | undefined): boolean {
  return text !== undefined && text.status.length > 0 && text.means.trim() !== '' && text.do.trim() !== '';
}

const alternatives = new Intl.ListFormat('en', { type: 'disjunction' });

function writeEntry(code: string, text: CodeText | undefined): string {
  const statuses = text?.status ?? [];
  const statusNote =
    statuses.length > 1 ? ` Its status is ${alternatives.format(statuses.map(String))}.` : '';
  return `### ${code}\n${text?.means}${statusNote} **What to do:** ${text?.do}\n`;
}
