// The scripted provider's Converse format of Amazon Bedrock, with frames of AWS's event stream encoding:
// shapes from the types and tests of `@ai-sdk/amazon-bedrock`. The scripts have the names of
// provider-formats.ts; further ones are `redacted`, `limit`, `filtered`, `no-usage`, `damaged` (a wrong
// checksum), and `anthropic.claude:0`, an answer like `ok` from a model whose name has a colon.
import { crc32 } from 'node:zlib';

/** The script of a call without its parameters, and the parsed request. */
interface Scene {
  script: string;
  body: Record<string, unknown>;
}

const toolInput = { city: 'Oslo' };
const usage = {
  inputTokens: 10,
  outputTokens: 4,
  totalTokens: 19,
  cacheReadInputTokens: 3,
  cacheWriteInputTokens: 2,
  cacheDetails: [{ inputTokens: 2, ttl: '1h' }],
};
const text = { text: 'Hello from the provider.' };
const reasoningContent = { reasoningText: { text: 'Let me think.', signature: 'bedrock-signature' } };

/** A whole answer of `/converse`; undefined for another script. */
export function converseAnswer({ script, body }: Scene): object | undefined {
  const answer = (content: object[], stopReason: string) => ({
    output: { message: { role: 'assistant', content } },
    stopReason,
    usage,
    metrics: { latencyMs: 1 },
  });
  switch (script) {
    case 'ok':
    case 'anthropic.claude:0':
      return answer([text], 'end_turn');
    case 'tools':
      return answer(
        [{ toolUse: { toolUseId: 'tooluse_1', name: toolNameOf(body), input: toolInput } }],
        'tool_use',
      );
    case 'reasoning':
      return answer([{ reasoningContent }, text], 'end_turn');
    case 'redacted':
      return answer([{ reasoningContent: { redactedContent: 'c2VjcmV0' } }, text], 'end_turn');
    case 'limit':
      return answer([text], 'max_tokens');
    case 'filtered':
      return answer([text], 'content_filtered');
    default:
      return undefined;
  }
}

/** The last tool of the request. For JSON answers the package appends one of its own and requires a call. */
function toolNameOf(body: Record<string, unknown>): string {
  const { tools = [] } = (body['toolConfig'] ?? {}) as { tools?: { toolSpec?: { name?: string } }[] };
  return tools.at(-1)?.toolSpec?.name ?? 'get_weather';
}

/** The frames of `/converse-stream`; undefined for another script. */
export function converseFrames({ script, body }: Scene): Buffer[] | undefined {
  const block = (contentBlockIndex: number, deltas: object[], start?: object) => [
    ...(start === undefined ? [] : [event('contentBlockStart', { contentBlockIndex, start })]),
    ...deltas.map((delta) => event('contentBlockDelta', { contentBlockIndex, delta })),
    event('contentBlockStop', { contentBlockIndex }),
  ];
  const start = event('messageStart', { role: 'assistant' });
  const texts = (index: number) =>
    block(
      index,
      ['Hello ', 'from ', 'the provider.'].map((piece) => ({ text: piece })),
    );
  const finish = (stopReason: string) => [
    event('messageStop', { stopReason }),
    event('metadata', { usage, metrics: { latencyMs: 1 } }),
  ];
  switch (script) {
    case 'ok':
    case 'anthropic.claude:0':
      return [start, ...texts(0), ...finish('end_turn')];
    case 'tools':
      return [
        start,
        ...block(
          0,
          ['{"city":', '"Oslo"}'].map((input) => ({ toolUse: { input } })),
          { toolUse: { toolUseId: 'tooluse_1', name: toolNameOf(body) } },
        ),
        ...finish('tool_use'),
      ];
    case 'reasoning':
      return [
        start,
        ...block(0, [
          { reasoningContent: { text: 'Let me think.' } },
          { reasoningContent: { signature: 'bedrock-signature' } },
        ]),
        ...texts(1),
        ...finish('end_turn'),
      ];
    case 'redacted':
      return [
        start,
        ...block(0, [{ reasoningContent: { redactedContent: 'c2VjcmV0' } }]),
        ...texts(1),
        ...finish('end_turn'),
      ];
    case 'limit':
      return [start, ...texts(0), ...finish('max_tokens')];
    case 'no-usage':
      return [start, ...texts(0), event('messageStop', { stopReason: 'end_turn' })];
    case 'cut':
      return [start, ...texts(0)];
    case 'error':
      return [start, ...texts(0), exception('modelStreamErrorException', 'The model failed')];
    case 'error-first':
      return [exception('throttlingException', 'Too many requests')];
    case 'damaged': {
      const frames = [start, ...texts(0), ...finish('end_turn')];
      // The sixth byte from the end belongs to the payload; the last four are its checksum.
      const lastFrame = frames.at(-1);
      if (lastFrame !== undefined)
        lastFrame[lastFrame.length - 6] = (lastFrame[lastFrame.length - 6] ?? 0) ^ 1;
      return frames;
    }
    default:
      return undefined;
  }
}

/** A frame with an event. */
export function event(type: string, payload: object): Buffer {
  return frame(
    { ':event-type': type, ':content-type': 'application/json', ':message-type': 'event' },
    payload,
  );
}

/** A frame with an exception. */
export function exception(type: string, message: string): Buffer {
  return frame(
    { ':exception-type': type, ':content-type': 'application/json', ':message-type': 'exception' },
    { message },
  );
}

// The type of a header whose value is a text.
const stringType = 7;

/**
 * A frame of the event stream encoding: a prelude of 12 bytes (the lengths of the frame and of its headers, and
 * their checksum), the headers, the payload, and a checksum of 4 bytes.
 */
function frame(headers: Record<string, string>, payload: object): Buffer {
  const headerBytes = Buffer.concat(
    Object.entries(headers).map(([name, value]) => {
      const head = Buffer.from([
        name.length,
        ...Buffer.from(name),
        stringType,
        value.length >> 8,
        value.length & 0xff,
      ]);
      return Buffer.concat([head, Buffer.from(value)]);
    }),
  );
  const body = Buffer.from(JSON.stringify(payload));
  const prelude = Buffer.alloc(12);
  prelude.writeUInt32BE(16 + headerBytes.length + body.length, 0);
  prelude.writeUInt32BE(headerBytes.length, 4);
  prelude.writeUInt32BE(crc32(prelude.subarray(0, 8)), 8);
  const content = Buffer.concat([prelude, headerBytes, body]);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(crc32(content));
  return Buffer.concat([content, checksum]);
}
