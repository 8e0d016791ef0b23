// A contract of 130 paths, literal and templated, about the size of the product's own, and the
// operation that the benchmark calls.
interface Document {
  openapi: string;
  info: object;
  paths: Record<string, object>;
  components: object;
}

export const benchedPath = '/v1/ai/text';
export const benchedOperation = 'ai.generateText';

export function benchDocument(): { document: Document; operationIds: string[] } {
  const operationIds: string[] = [];
  const paths: Record<string, object> = {};
  const add = (
    path: string,
    method: string,
    operation: { operationId: string; [member: string]: unknown },
  ): void => {
    operationIds.push(operation.operationId);
    paths[path] = { [method]: operation };
  };
  const answer = {
    responses: {
      200: { description: 'Done.', content: { 'application/json': { schema: { type: 'object' } } } },
    },
  };
  const security = [{ userToken: [] }, { adminSession: [] }];
  const body = {
    required: true,
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Prompt' } } },
  };
  add(benchedPath, 'post', { operationId: benchedOperation, security, requestBody: body, ...answer });
  for (let index = 0; index < 89; index += 1) {
    add(`/v1/room${index % 9}/action${index}`, 'post', {
      operationId: `rooms.act${index}`,
      security,
      requestBody: body,
      ...answer,
    });
  }
  for (let index = 0; index < 38; index += 1) {
    const parameters = [
      {
        name: 'item_id',
        in: 'path',
        required: true,
        schema: { type: 'string', pattern: '^[A-Za-z0-9_-]{1,128}$' },
      },
    ];
    add(`/v1/room${index % 9}/items${index}/{item_id}`, 'get', {
      operationId: `items.read${index}`,
      security,
      parameters,
      ...answer,
    });
  }
  const genericSchemas = ['service', 'action', 'step'].map((name) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
  add('/v1/{service}/{action}', 'post', {
    operationId: 'directory.call',
    security,
    parameters: genericSchemas.slice(0, 2),
    ...answer,
  });
  add('/v1/{service}/{action}/{step}', 'post', {
    operationId: 'directory.callStep',
    security,
    parameters: genericSchemas,
    ...answer,
  });
  const document = {
    openapi: '3.1.1',
    info: { title: 'Benchmark', version: '1' },
    paths,
    components: {
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
    },
  };
  return { document, operationIds };
}
