// The lint of observed error codes: which of the listed codes count as seen, and which exceptions are needed.
import { describe, expect, test } from 'vitest';
import { findUnobserved, listedCodes } from '../../scripts/observed-codes.ts';
import type { Document } from '../../scripts/generate/document.ts';

function documentOf(operations: Record<string, { codes: string[]; aliasOf?: string }>): Document {
  const paths = Object.entries(operations).map(([id, { codes, aliasOf }]) => [
    `/v1/${id}`,
    {
      get: {
        operationId: id,
        security: [],
        'x-error-codes': codes,
        ...(aliasOf === undefined ? {} : { 'x-alias-of': aliasOf }),
      },
    },
  ]);
  return { paths: Object.fromEntries(paths) as Document['paths'] & object };
}

// `draining` is a code of shared code; `job_not_found` is one of the operation alone.
const contractCodes = listedCodes([
  {
    name: 'gateway',
    document: documentOf({
      'things.getThing': { codes: ['job_not_found', 'draining'] },
      'things.listThings': { codes: ['draining'] },
      'things.getThingElsewhere': { codes: ['job_not_found', 'draining'], aliasOf: 'things.getThing' },
    }),
  },
]);
const recordOf = (...lines: string[]) => new Set(lines);

describe('a listed error code', () => {
  test('has to be seen at its operation', () => {
    expect(findUnobserved(contractCodes, recordOf('things.getThing draining'), {})).toEqual([
      'no test sees things.getThing job_not_found',
    ]);
    expect(
      findUnobserved(
        contractCodes,
        recordOf('things.getThing draining', 'things.listThings job_not_found'),
        {},
      ),
    ).toEqual(['no test sees things.getThing job_not_found']);
  });

  test('of shared code has to be seen at one operation', () => {
    const record = recordOf('things.getThing job_not_found', 'things.listThings draining');
    expect(findUnobserved(contractCodes, record, {})).toEqual([]);
  });

  test('of shared code may be seen before the operation is known', () => {
    expect(findUnobserved(contractCodes, recordOf('things.getThing job_not_found', ' draining'), {})).toEqual(
      [],
    );
    expect(findUnobserved(contractCodes, recordOf(' job_not_found', ' draining'), {})).toHaveLength(1);
  });
});

describe('an exception', () => {
  const record = recordOf('things.getThing job_not_found', 'things.getThing draining');

  test('is for a code that no test sees', () => {
    const name = 'things.getThing job_not_found';
    expect(findUnobserved(contractCodes, recordOf(' draining'), { [name]: 'A reason.' })).toEqual([]);
    expect(findUnobserved(contractCodes, record, { [name]: 'A reason.' })).toEqual([
      `the exception "${name}" is seen, or listed nowhere`,
    ]);
  });

  test('for a race may be seen', () => {
    expect(findUnobserved(contractCodes, record, { 'things.getThing job_not_found': 'Raced: …' })).toEqual(
      [],
    );
    expect(findUnobserved(contractCodes, record, { 'things.getThing none': 'Raced: …' })).toHaveLength(1);
  });
});
