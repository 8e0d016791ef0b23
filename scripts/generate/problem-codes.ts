// Writes the union of problem codes from the contract's one list, so that an unknown code does not
// compile.

import type { Document } from './document.ts';

/** The text of problem-code.gen.ts; throws unless all documents with the list have the same one. */
export function writeProblemCodes(documents: readonly { name: string; document: Document }[]): string {
  const lists = documents.flatMap(({ name, document }) => {
    const codes = document.components?.schemas?.ProblemCode?.enum;
    return codes === undefined ? [] : [{ name, codes: codes as string[] }];
  });
  const [firstList, ...otherLists] = lists;
  if (firstList === undefined || firstList.codes.length === 0)
    throw new Error(
      'no document refers to openapi/shared/schemas/ProblemCode.yaml, so there are no problem codes',
    );
  for (const list of otherLists) {
    if (list.codes.join() !== firstList.codes.join())
      throw new Error(
        `${list.name} and ${firstList.name} have different problem codes; ` +
          'there is one list, in openapi/shared',
      );
  }
  return `// Generated from openapi/shared/schemas/ProblemCode.yaml by scripts/generate.ts; change the contract instead.

/** What went wrong, for programs. */
export type ProblemCode =
${firstList.codes.map((code) => `  | '${code}'`).join('\n')};
`;
}
