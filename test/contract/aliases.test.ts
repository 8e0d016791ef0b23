// Aliases are further paths of an operation. The published document has them, the clients' document has not.
import { describe, expect, test } from 'vitest';
import { addAliases, clientDocument } from '../../scripts/generate/aliases.ts';
import { type Document, operationsOf } from '../../scripts/generate/document.ts';

const thingSchema = {
  operationId: 'things.getThing',
  summary: 'Read a thing',
  security: [{ userToken: [] }, { keyHeader: [] }],
  responses: { '200': {} },
};
const documentWith = (paths: object): Document =>
  ({
    paths: { '/v1/own/{thing_id}': { get: structuredClone(thingSchema) }, ...paths },
    components: { securitySchemes: { userToken: { type: 'http' }, keyHeader: { type: 'apiKey' } } },
  }) as unknown as Document;
const aliasedDocument = () =>
  documentWith({ '/v1/things/{thing_id}': { 'x-alias-of': '/v1/own/{thing_id}' } });

describe('an alias', () => {
  test('is an operation with an id of its own', () => {
    const document = aliasedDocument();
    addAliases(document);
    expect(operationsOf(document).map(({ path, id }) => [path, id])).toEqual([
      ['/v1/own/{thing_id}', 'things.getThing'],
      ['/v1/things/{thing_id}', 'things.getThingAtV1ThingsThingId'],
    ]);
    expect(document.paths?.['/v1/things/{thing_id}']?.['get']).toMatchObject({
      'x-alias-of': 'things.getThing',
      security: thingSchema.security,
      responses: thingSchema.responses,
    });
  });

  test('of a missing path fails the generator', () => {
    const document = documentWith({ '/v1/things': { 'x-alias-of': '/v1/nothing' } });
    expect(() => addAliases(document)).toThrow('/v1/things is an alias of /v1/nothing');
  });

  test('of another alias fails the generator', () => {
    const document = aliasedDocument();
    Object.assign(document.paths ?? {}, { '/v1/more': { 'x-alias-of': '/v1/things/{thing_id}' } });
    expect(() => addAliases(document)).toThrow('/v1/more is an alias');
  });
});

test("the clients' document has each operation once and only bearer tokens", () => {
  const document = aliasedDocument();
  addAliases(document);
  const client = clientDocument(document);
  expect(operationsOf(client).map(({ id }) => id)).toEqual(['things.getThing']);
  expect(operationsOf(client)[0]?.operation.security).toEqual([{ userToken: [] }]);
  expect(Object.keys(client.components?.securitySchemes ?? {})).toEqual(['userToken']);
  expect(operationsOf(document)).toHaveLength(2);
});
