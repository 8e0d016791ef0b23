// A contract of 130 paths, literal and templated, about as large as the product's contract, and the operation
// that the benchmark calls.
interface Document {
  openapi: string;
  info: object;
  paths: Record<string, object>;
  components: object;
}

export const benchedPath = '/v1/ai/text';
export const benchedOperation = 'ai.generateText';

const serviceCount = 9;
const actionCount = 89;
const itemCount = 38;

export function benchDocument(): { document: Document; operationIds: string[] } {
  const operationIds: string[] = [];
  const paths: Record<string, object> = {};
  const add = (path: string, method: string, operationId: string, members: object): void => {
    operationIds.push(operationId);
    paths[path] = { [method]: { operationId, security, responses, ...members } };
  };
  add(benchedPath, 'post', benchedOperation, { requestBody });
  for (let index = 0; index < actionCount; index += 1)
    add(`/v1/service${index % serviceCount}/action${index}`, 'post', `services.act${index}`, { requestBody });
  const itemId = pathParameter('item_id', { pattern: '^[A-Za-z0-9_-]{1,128}$' });
  for (let index = 0; index < itemCount; index += 1)
    add(`/v1/service${index % serviceCount}/items${index}/{item_id}`, 'get', `items.read${index}`, {
      parameters: [itemId],
    });
  const directory = ['service', 'action'].map((name) => pathParameter(name));
  add('/v1/{service}/{action}', 'post', 'directory.call', { parameters: directory });
  add('/v1/{service}/{action}/{step}', 'post', 'directory.callStep', {
    parameters: [...directory, pathParameter('step')],
  });
  const info = { title: 'Benchmark', version: '1' };
  return { document: { openapi: '3.1.1', info, paths, components }, operationIds };
}

function pathParameter(name: string, members: object = {}): object {
  return { name, in: 'path', required: true, schema: { type: 'string', ...members } };
}

const security = [{ userToken: [] }, { adminSession: [] }];
const responses = {
  200: { description: 'Done.', content: { 'application/json': { schema: { type: 'object' } } } },
};
const requestBody = {
  required: true,
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Prompt' } } },
};
const components = {
  securitySchemes: {
    userToken: { type: 'http', scheme: 'bearer' },
    adminSession: { type: 'http', scheme: 'bearer' },
  },
  schemas: {
    Prompt: {
      type: 'object',
      required: ['model'],
      additionalProperties: false,
      properties: {
        model: { type: 'string', minLength: 1, maxLength: 200 },
        prompt: { type: 'string' },
        messages: { type: 'array', minItems: 1, items: { $ref: '#/components/schemas/Message' } },
        max_output_tokens: { type: 'integer', minimum: 1 },
        temperature: { type: 'number', minimum: 0, maximum: 2 },
      },
    },
    Message: {
      type: 'object',
      required: ['role', 'content'],
      additionalProperties: false,
      properties: { role: { enum: ['system', 'user', 'assistant'] }, content: { type: 'string' } },
    },
  },
};
