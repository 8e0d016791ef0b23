// The scripted provider's other formats: Anthropic's messages, Google's generateContent, OpenAI's
// responses, older completions and embeddings, moderations, and rerank. The common script names are those
// of chat completions: `ok`, `tools`, `reasoning`, `cut` (a stream without its end), `error` (midway),
// `error-first`. `cut-start`, `error-start` and `failed-start` end a stream that has begun, before its
// first text. Scripts of one format: `signed` and `malformed` (Google), `search`, `encrypted` and `incomplete`
// (responses), `long-vectors` (embeddings). `status` and the like are in provider.ts.
import type { ServerResponse } from 'node:http';
import { converseAnswer, converseFrames } from './provider-bedrock.ts';

/** The input of a script for one call. */
export interface FormatScene {
  path: string;
  response: ServerResponse;
  /** The script without its parameters. */
  script: string;
  /** The parsed request body. */
  body: Record<string, unknown>;
  /** Marks the script as finished and ends the answer. */
  end(rest?: string | Buffer): void;
}

const json = { 'content-type': 'application/json' };
const eventStream = { 'content-type': 'text/event-stream' };

/** Plays the script in the format of the path; false for another path or script. */
export function playFormat(scene: FormatScene): boolean {
  if (scene.path.endsWith('/messages'))
    return play(scene, scene.body['stream'] === true, messageEvents, message);
  if (scene.path.endsWith('/responses'))
    return play(scene, scene.body['stream'] === true, responseEvents, response);
  // The older completions; the path of chat completions has the same ending.
  if (/(?<!\/chat)\/completions$/.test(scene.path))
    return play(scene, scene.body['stream'] === true, completionEvents, completion);
  if (scene.path.endsWith(':rawPredict')) return play(scene, false, messageEvents, message);
  if (scene.path.endsWith(':streamRawPredict')) return play(scene, true, messageEvents, message);
  if (scene.path.endsWith('/converse')) return play(scene, false, () => undefined, converseAnswer);
  if (scene.path.endsWith('/converse-stream')) return playFrames(scene);
  if (/:streamGenerateContent\b/.test(scene.path)) return play(scene, true, contentEvents, content);
  if (scene.path.endsWith(':generateContent')) return play(scene, false, contentEvents, content);
  if (scene.path.endsWith('/embeddings')) return play(scene, false, () => undefined, embeddings);
  if (scene.path.endsWith('/moderations')) return play(scene, false, () => undefined, moderation);
  if (scene.path.endsWith('/rerank')) return play(scene, false, () => undefined, rerank);
  return false;
}

/** The model's name if it is in the path instead of the body, as with Google. */
export function modelInPath(path: string): string | undefined {
  const name = /\/models\/([^/:]+):/.exec(path)?.[1] ?? /\/model\/([^/]+)\/converse/.exec(path)?.[1];
  return name === undefined ? undefined : decodeURIComponent(name);
}

type Whole = (scene: FormatScene) => object | undefined;
type Frames = (scene: FormatScene) => string[] | undefined;

function play(scene: FormatScene, streams: boolean, frames: Frames, renderWhole: Whole): boolean {
  const answer = streams ? frames(scene) : renderWhole(scene);
  if (answer === undefined) return false;
  scene.response.writeHead(200, streams ? eventStream : json);
  scene.end(Array.isArray(answer) ? answer.join('') : JSON.stringify(answer));
  return true;
}

function playFrames(scene: FormatScene): boolean {
  const frames = converseFrames(scene);
  if (frames === undefined) return false;
  scene.response.writeHead(200, { 'content-type': 'application/vnd.amazon.eventstream' });
  scene.end(Buffer.concat(frames));
  return true;
}

const toolInput = { city: 'Oslo' };

function message({ script, body: input }: FormatScene): object | undefined {
  const base = {
    id: 'msg_scripted',
    type: 'message',
    role: 'assistant',
    model: input['model'],
    stop_sequence: null,
  };
  const usage = {
    input_tokens: 10,
    output_tokens: 4,
    cache_read_input_tokens: 3,
    cache_creation_input_tokens: 2,
  };
  const text = { type: 'text', text: 'Hello from the provider.' };
  switch (script) {
    case 'ok':
      return { ...base, content: [text], stop_reason: 'end_turn', usage };
    case 'tools':
      return {
        ...base,
        content: [{ type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: toolInput }],
        stop_reason: 'tool_use',
        usage,
      };
    case 'reasoning':
      return {
        ...base,
        content: [{ type: 'thinking', thinking: 'Let me think.', signature: 'sig' }, text],
        stop_reason: 'end_turn',
        usage,
      };
    default:
      return undefined;
  }
}

function messageEvents({ script, body: input }: FormatScene): string[] | undefined {
  const frame = (data: { type: string } & Record<string, unknown>) =>
    `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
  const start = frame({
    type: 'message_start',
    message: {
      id: 'msg_scripted',
      type: 'message',
      role: 'assistant',
      model: input['model'],
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: {
        input_tokens: 10,
        output_tokens: 1,
        cache_read_input_tokens: 3,
        cache_creation_input_tokens: 2,
      },
    },
  });
  const block = (index: number, startEvent: object, deltas: object[]) => [
    frame({ type: 'content_block_start', index, content_block: startEvent }),
    ...deltas.map((delta) => frame({ type: 'content_block_delta', index, delta })),
    frame({ type: 'content_block_stop', index }),
  ];
  const text = (index: number) =>
    block(
      index,
      { type: 'text', text: '' },
      ['Hello ', 'from ', 'the provider.'].map((piece) => ({ type: 'text_delta', text: piece })),
    );
  const finish = (reason: string) => [
    frame({
      type: 'message_delta',
      delta: { stop_reason: reason, stop_sequence: null },
      usage: { output_tokens: 4 },
    }),
    frame({ type: 'message_stop' }),
  ];
  const overloadedError = frame({
    type: 'error',
    error: { type: 'overloaded_error', message: 'Overloaded' },
  });
  switch (script) {
    case 'ok':
      return [start, frame({ type: 'ping' }), ...text(0), ...finish('end_turn')];
    case 'tools': {
      const pieces = ['{"city":', '"Oslo"}'].map((piece) => ({
        type: 'input_json_delta',
        partial_json: piece,
      }));
      return [
        start,
        ...block(0, { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: {} }, pieces),
        ...finish('tool_use'),
      ];
    }
    case 'reasoning': {
      const thinkingBlock = block(0, { type: 'thinking', thinking: '', signature: '' }, [
        { type: 'thinking_delta', thinking: 'Let me think.' },
        { type: 'signature_delta', signature: 'sig' },
      ]);
      return [start, ...thinkingBlock, ...text(1), ...finish('end_turn')];
    }
    case 'cut':
      return [start, ...text(0)];
    case 'error':
      return [start, ...text(0), overloadedError];
    case 'error-start':
      return [start, frame({ type: 'ping' }), overloadedError];
    case 'cut-start':
      return [start];
    case 'error-first':
      return [overloadedError];
    default:
      return undefined;
  }
}

const contentUsage = {
  promptTokenCount: 10,
  candidatesTokenCount: 4,
  totalTokenCount: 14,
  cachedContentTokenCount: 3,
};
const candidate = (parts: object[], finishReason?: string) => ({
  candidates: [{ index: 0, content: { role: 'model', parts }, ...(finishReason ? { finishReason } : {}) }],
  modelVersion: 'scripted',
  usageMetadata: contentUsage,
});

const signedCall = {
  functionCall: { name: 'get_weather', args: toolInput },
  thoughtSignature: 'gemini-signature',
};

function content({ script }: FormatScene): object | undefined {
  switch (script) {
    case 'ok':
      return candidate([{ text: 'Hello from the provider.' }], 'STOP');
    case 'tools':
      return candidate([{ functionCall: { name: 'get_weather', args: toolInput } }], 'STOP');
    case 'reasoning':
      return candidate(
        [{ text: 'Let me think.', thought: true }, { text: 'Hello from the provider.' }],
        'STOP',
      );
    case 'signed':
      return candidate([{ text: 'Let me think.', thought: true }, signedCall], 'STOP');
    case 'malformed':
      return candidate([], 'MALFORMED_FUNCTION_CALL');
    default:
      return undefined;
  }
}

function contentEvents({ script }: FormatScene): string[] | undefined {
  // Google ends its lines with CRLF.
  const frame = (data: object) => `data: ${JSON.stringify(data)}\r\n\r\n`;
  const pieces = ['Hello ', 'from ', 'the provider.'].map((text) => frame(candidate([{ text }])));
  switch (script) {
    case 'ok':
      return [...pieces, frame(candidate([{ text: '' }], 'STOP'))];
    case 'tools':
      return [frame(candidate([{ functionCall: { name: 'get_weather', args: toolInput } }], 'STOP'))];
    case 'reasoning':
      return [
        frame(candidate([{ text: 'Let me think.', thought: true }])),
        ...pieces,
        frame(candidate([{ text: '' }], 'STOP')),
      ];
    case 'signed':
      return [
        frame(candidate([{ text: 'Let me think.', thought: true }])),
        frame(candidate([signedCall], 'STOP')),
      ];
    case 'cut':
      return pieces;
    case 'error':
      return [
        ...pieces,
        frame({ error: { code: 503, message: 'The model is overloaded', status: 'UNAVAILABLE' } }),
      ];
    case 'error-first':
      return [frame({ error: { code: 503, message: 'The model is overloaded', status: 'UNAVAILABLE' } })];
    case 'malformed':
      return [frame(candidate([], 'MALFORMED_FUNCTION_CALL'))];
    default:
      return undefined;
  }
}

function response({ script, body: input }: FormatScene): object | undefined {
  const output =
    script === 'tools'
      ? [
          {
            type: 'function_call',
            id: 'fc_1',
            call_id: 'call_1',
            name: 'get_weather',
            arguments: JSON.stringify(toolInput),
            status: 'completed',
          },
        ]
      : [outputMessage('completed', 'Hello from the provider.')];
  if (script === 'reasoning') return responseObject(input, 'completed', [summarizedReasoning, ...output]);
  if (script === 'encrypted') return responseObject(input, 'completed', [encryptedReasoning, ...output]);
  return script === 'ok' || script === 'tools' ? responseObject(input, 'completed', output) : undefined;
}

const summarizedReasoning = {
  type: 'reasoning',
  id: 'rs_1',
  summary: [{ type: 'summary_text', text: 'Let me think.' }],
};

const encryptedReasoning = { ...summarizedReasoning, encrypted_content: 'openai-encrypted' };

function outputMessage(status: string, text: string): object {
  return {
    type: 'message',
    id: 'msg_1',
    role: 'assistant',
    status,
    content: text === '' ? [] : [{ type: 'output_text', text, annotations: [], logprobs: [] }],
  };
}

function responseObject(input: Record<string, unknown>, status: string, output: object[]): object {
  const usage = {
    input_tokens: 10,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 4,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 14,
  };
  return {
    id: 'resp_scripted',
    object: 'response',
    created_at: 1_700_000_000,
    status,
    model: input['model'],
    output,
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    usage: status === 'completed' ? usage : null,
  };
}

function responseEvents({ script, body: input }: FormatScene): string[] | undefined {
  let count = 0;
  const frame = (data: { type: string } & Record<string, unknown>) =>
    `event: ${data.type}\ndata: ${JSON.stringify({ ...data, sequence_number: (count += 1) })}\n\n`;
  const place = { item_id: 'msg_1', output_index: 0, content_index: 0 };
  const startEvents = [
    frame({ type: 'response.created', response: responseObject(input, 'in_progress', []) }),
    frame({ type: 'response.output_item.added', output_index: 0, item: outputMessage('in_progress', '') }),
    frame({
      type: 'response.content_part.added',
      ...place,
      part: { type: 'output_text', text: '', annotations: [], logprobs: [] },
    }),
    ...['Hello ', 'from ', 'the provider.'].map((delta) =>
      frame({ type: 'response.output_text.delta', ...place, delta, logprobs: [] }),
    ),
  ];
  const endEvents = [
    frame({ type: 'response.output_text.done', ...place, text: 'Hello from the provider.', logprobs: [] }),
    frame({
      type: 'response.content_part.done',
      ...place,
      part: { type: 'output_text', text: 'Hello from the provider.', annotations: [], logprobs: [] },
    }),
    frame({
      type: 'response.output_item.done',
      output_index: 0,
      item: outputMessage('completed', 'Hello from the provider.'),
    }),
    frame({
      type: 'response.completed',
      response: responseObject(input, 'completed', [outputMessage('completed', 'Hello from the provider.')]),
    }),
  ];
  const failure = { type: 'error', code: 'server_error', message: 'boom', param: null };
  switch (script) {
    case 'ok':
      return [...startEvents, ...endEvents];
    case 'search': {
      const search = {
        type: 'web_search_call',
        id: 'ws_1',
        status: 'completed',
        action: { type: 'search', query: 'Oslo' },
      };
      const annotation = {
        type: 'url_citation',
        url: 'https://weather.example/oslo',
        title: 'Weather',
        start_index: 0,
        end_index: 5,
      };
      const [createdEvent = '', ...events] = startEvents;
      return [
        createdEvent,
        frame({
          type: 'response.output_item.added',
          output_index: 0,
          item: { ...search, status: 'in_progress' },
        }),
        frame({ type: 'response.web_search_call.searching', item_id: 'ws_1', output_index: 0 }),
        frame({ type: 'response.output_item.done', output_index: 0, item: search }),
        ...events,
        frame({ type: 'response.output_text.annotation.added', ...place, annotation_index: 0, annotation }),
        ...endEvents,
      ];
    }
    case 'encrypted':
    case 'reasoning': {
      const [createdEvent = '', ...events] = startEvents;
      const reasoning = script === 'encrypted' ? encryptedReasoning : summarizedReasoning;
      const position = { item_id: 'rs_1', output_index: 0 };
      return [
        createdEvent,
        frame({ type: 'response.output_item.added', output_index: 0, item: { ...reasoning, summary: [] } }),
        frame({
          type: 'response.reasoning_summary_part.added',
          ...position,
          summary_index: 0,
          part: { type: 'summary_text', text: '' },
        }),
        frame({
          type: 'response.reasoning_summary_text.delta',
          ...position,
          summary_index: 0,
          delta: 'Let me think.',
        }),
        frame({
          type: 'response.reasoning_summary_part.done',
          ...position,
          summary_index: 0,
          part: summarizedReasoning.summary[0],
        }),
        frame({ type: 'response.output_item.done', output_index: 0, item: reasoning }),
        ...events,
        ...endEvents,
      ];
    }
    case 'incomplete':
      return [
        ...startEvents,
        frame({
          type: 'response.incomplete',
          response: {
            ...responseObject(input, 'completed', []),
            status: 'incomplete',
            incomplete_details: { reason: 'max_output_tokens' },
          },
        }),
      ];
    case 'cut':
      return startEvents;
    case 'error':
      return [...startEvents, frame(failure)];
    case 'error-start':
      return [...startEvents.slice(0, 1), frame(failure)];
    case 'cut-start':
      return startEvents.slice(0, 1);
    case 'failed-start':
      return [
        ...startEvents.slice(0, 1),
        frame({
          type: 'response.failed',
          response: {
            ...responseObject(input, 'failed', []),
            error: { code: 'server_error', message: 'boom' },
          },
        }),
      ];
    case 'error-first':
      return [frame(failure)];
    default:
      return undefined;
  }
}

const completionUsage = { prompt_tokens: 10, completion_tokens: 4, total_tokens: 14 };

function completionChunk({ body }: FormatScene, text: string, reason: string | null): object {
  return {
    id: 'cmpl-scripted',
    object: 'text_completion',
    created: 1_700_000_000,
    model: body['model'],
    choices: [{ index: 0, text, logprobs: null, finish_reason: reason }],
  };
}

function completion(scene: FormatScene): object | undefined {
  if (scene.script !== 'ok') return undefined;
  return { ...completionChunk(scene, 'Hello from the provider.', 'stop'), usage: completionUsage };
}

function completionEvents(scene: FormatScene): string[] | undefined {
  const frame = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
  const pieces = ['Hello ', 'from ', 'the provider.'].map((text) =>
    frame(completionChunk(scene, text, null)),
  );
  if (scene.script === 'cut') return pieces;
  if (scene.script !== 'ok') return undefined;
  const usage = { ...completionChunk(scene, '', null), choices: [], usage: completionUsage };
  const { stream_options: options } = scene.body as { stream_options?: { include_usage?: boolean } };
  return [
    ...pieces,
    frame(completionChunk(scene, '', 'stop')),
    ...(options?.include_usage === true ? [frame(usage)] : []),
    'data: [DONE]\n\n',
  ];
}

function embeddings({ script, body }: FormatScene): object | undefined {
  if (script !== 'ok' && script !== 'long-vectors') return undefined;
  const { input } = body;
  // An array of numbers is one input of tokens.
  const inputs: unknown[] = Array.isArray(input) && typeof input[0] !== 'number' ? input : [input];
  const vector =
    script === 'ok'
      ? Float32Array.of(0.5, -0.25, 1)
      : Float32Array.from({ length: 1_536 }, (_, index) => Math.sin(index) / 40);
  const vectors =
    body['encoding_format'] === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector];
  return {
    object: 'list',
    data: inputs.map((_, index) => ({ object: 'embedding', index, embedding: vectors })),
    model: body['model'],
    usage: { prompt_tokens: 2, total_tokens: 2 },
  };
}

function moderation({ script, body }: FormatScene): object | undefined {
  if (script !== 'ok') return undefined;
  const inputs = Array.isArray(body['input']) ? body['input'] : [body['input']];
  return {
    id: 'modr-scripted',
    model: body['model'],
    results: inputs.map((input) => ({
      flagged: String(input).includes('harm'),
      categories: { violence: String(input).includes('harm') },
      category_scores: { violence: 0.5 },
      category_applied_input_types: { violence: ['text'] },
    })),
  };
}

/** The last document has the highest score. */
function rerank({ script, body: input }: FormatScene): object | undefined {
  if (script !== 'ok') return undefined;
  const documents = input['documents'] as unknown[];
  return {
    id: 'rerank_scripted',
    results: documents.map((_, index) => ({
      index: documents.length - 1 - index,
      relevance_score: 1 / (index + 1),
    })),
    meta: { billed_units: { search_units: 1 } },
  };
}
