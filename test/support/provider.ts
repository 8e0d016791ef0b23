// A scripted model provider that stands in for a model company's server. The model's name in a request
// is its script, such as `ok?chunks=5&gap=10` or `status?code=429`, so a models file alone decides the
// provider's behaviour. It records every call: what was requested and what was delivered.
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { closeServer, listen, readBody } from './local-server.ts';
import { modelInPath, playFormat } from './provider-formats.ts';
import { createVideos } from './provider-videos.ts';

/** One call as the provider saw it. Times are milliseconds of `performance.now()`. */
export interface ProviderCall {
  id: number;
  method: string;
  path: string;
  script: string;
  headers: IncomingHttpHeaders;
  /** The raw body. */
  body: Buffer;
  receivedAt: number;
  /** When the caller closed the connection before the end of the answer. */
  abortedAt?: number;
  /** When the script had sent everything. */
  finishedAt?: number;
  /** Output tokens that were sent. */
  tokens: number;
}

export interface ScriptedProvider {
  /** The `base_url` for a models file. */
  readonly url: string;
  readonly calls: ProviderCall[];
  /** Number of connections opened so far. */
  connections(): number;
  /** The last call; throws without one. */
  lastCall(): ProviderCall;
  /** Resolves once the predicate is true for the calls; rejects after the deadline. */
  until(holds: (calls: readonly ProviderCall[]) => boolean, deadlineMs?: number): Promise<void>;
  /**
   * Content of a models file: provider `acme` with this address, and a model `acme/<name>` for each
   * script.
   */
  modelsFile(scripts: Record<string, string>, overrides?: ModelsFileOverrides): string;
  /**
   * Makes every call with this key get the answer instead of its script; without `answer`, the
   * script again.
   */
  answerKey(key: string, answer?: KeyAnswer): void;
  reset(): void;
  close(): Promise<void>;
}

export interface KeyAnswer {
  status: number;
  /** Seconds. */
  retryAfter?: number;
}

/** The key of a call, from the header of any format. */
export function keyOf({ headers }: Pick<ProviderCall, 'headers'>): string {
  const bearer = headers.authorization?.replace(/^Bearer /, '');
  return bearer ?? String(headers['x-api-key'] ?? headers['x-goog-api-key'] ?? '');
}

export interface ModelsFileOverrides {
  /** Additional members of the provider and of each model. */
  provider?: Record<string, unknown>;
  model?: Record<string, unknown>;
  /** Whole entries beside those of the scripts. */
  providers?: Record<string, unknown>[];
  models?: Record<string, unknown>[];
}

interface Scene {
  request: IncomingMessage;
  response: ServerResponse;
  call: ProviderCall;
  /** All calls so far, including this one. */
  calls: readonly ProviderCall[];
  /** The parsed request body. */
  body: RequestBody;
  /** The parameters of the script. */
  parameters: URLSearchParams;
  /** Resolves after the time or when the caller disconnects. */
  sleep(ms: number): Promise<void>;
}

interface RequestBody {
  model?: string;
  stream?: boolean;
  stream_options?: { include_usage?: boolean };
  messages?: { role: string; content: unknown }[];
}

/** Starts the provider on a free port of the loopback interface. */
export async function startProvider(): Promise<ScriptedProvider> {
  const calls: ProviderCall[] = [];
  const watchers = new Set<() => void>();
  const timers = new Set<NodeJS.Timeout>();
  const playVideo = createVideos();
  const keyAnswers = new Map<string, KeyAnswer>();
  let count = 0;
  const notify = () => {
    // A watcher may remove itself meanwhile; iterating a Set allows that.
    for (const watcher of watchers) watcher();
  };

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  });

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await readBody(request);
    const input = parseBody(body);
    const modelName = input.model ?? modelInPath(request.url ?? '') ?? 'ok';
    // Google has the model in the path, where a question mark is not possible; `~` replaces it.
    const [script = '', parameters = ''] = modelName.split(/[?~]/);
    const call = recordCall(request, response, { script: modelName, body });
    const keyAnswer = keyAnswers.get(keyOf(call));
    if (keyAnswer !== undefined) return sendKeyAnswer(response, keyAnswer);
    const scene: Scene = {
      request,
      response,
      call,
      calls,
      body: input,
      parameters: new URLSearchParams(parameters),
      sleep: (ms) => sleepWhileOpen(ms, response, timers),
    };
    const isPlayed =
      playVideo({ request, response, model: modelName, end: (lastPart) => end(scene, lastPart) }) ||
      playFormat({
        path: call.path.split('?')[0] ?? '',
        response,
        script,
        body: input as Record<string, unknown>,
        end: (lastPart) => end(scene, lastPart),
      });
    if (!isPlayed) await (scripts[script] ?? scripts.unknown)?.(scene);
    notify();
  }

  /** Adds the call to `calls`, and notes later when its caller disconnects. */
  function recordCall(
    request: IncomingMessage,
    response: ServerResponse,
    { script, body }: Pick<ProviderCall, 'script' | 'body'>,
  ): ProviderCall {
    count += 1;
    const call: ProviderCall = {
      id: count,
      method: request.method ?? '',
      path: request.url ?? '',
      script,
      headers: request.headers,
      body,
      receivedAt: performance.now(),
      tokens: 0,
    };
    calls.push(call);
    notify();
    response.on('close', () => {
      if (!response.writableFinished && call.finishedAt === undefined) call.abortedAt = performance.now();
      notify();
    });
    return call;
  }

  let connections = 0;
  server.on('connection', () => (connections += 1));
  const url = `${(await listen(server)).url}/v1`;

  return {
    url,
    calls,
    connections: () => connections,
    lastCall() {
      const lastCall = calls.at(-1);
      if (lastCall === undefined) throw new Error('The provider was not called.');
      return lastCall;
    },
    until: (holds, deadlineMs = 30_000) => waitForCalls({ calls, watchers, holds, deadlineMs }),
    modelsFile: (names, overrides = {}) => writeModelsFile(url, names, overrides),
    answerKey(key, answer) {
      if (answer === undefined) keyAnswers.delete(key);
      else keyAnswers.set(key, answer);
    },
    reset() {
      keyAnswers.clear();
      calls.length = 0;
    },
    close() {
      for (const timer of timers) clearTimeout(timer);
      return closeServer(server);
    },
  };
}

function sendKeyAnswer(response: ServerResponse, { status, retryAfter }: KeyAnswer): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    ...(retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) }),
  });
  response.end(JSON.stringify({ error: { message: 'not this key', type: 'scripted' } }));
}

/** Resolves after the time or when the caller disconnects. */
function sleepWhileOpen(ms: number, response: ServerResponse, timers: Set<NodeJS.Timeout>): Promise<void> {
  if (response.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      timers.delete(timer);
      response.off('close', finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    timers.add(timer);
    response.on('close', finish);
  });
}

function waitForCalls({
  calls,
  watchers,
  holds,
  deadlineMs,
}: {
  calls: readonly ProviderCall[];
  watchers: Set<() => void>;
  holds: (calls: readonly ProviderCall[]) => boolean;
  deadlineMs: number;
}): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void) => {
      clearTimeout(timer);
      watchers.delete(check);
      act();
    };
    const timer = setTimeout(
      () => settle(() => reject(new Error('The calls did not satisfy the predicate before the deadline.'))),
      deadlineMs,
    );
    const check = () => {
      if (holds(calls)) settle(resolve);
    };
    watchers.add(check);
    check();
  });
}

function writeModelsFile(
  url: string,
  scripts: Record<string, string>,
  overrides: ModelsFileOverrides,
): string {
  const provider = {
    id: 'acme',
    name: 'Acme',
    kind: 'openai-compatible',
    base_url: url,
    api_key_env: 'ACME_API_KEY',
    usage: 'ask',
    ...overrides.provider,
  };
  const models = Object.entries(scripts).map(([name, script]) => ({
    id: `acme/${name}`,
    provider: 'acme',
    upstream_model: script,
    rates: null,
    ...overrides.model,
  }));
  return JSON.stringify({
    providers: [provider, ...(overrides.providers ?? [])],
    models: [...models, ...(overrides.models ?? [])],
  });
}

type Script = (scene: Scene) => void | Promise<void>;

const eventStream = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' };
const json = { 'content-type': 'application/json' };

function chunk(scene: Scene, delta: Record<string, unknown>, members: Record<string, unknown> = {}): string {
  const { finish_reason: finish = null, ...rest } = members;
  const base = {
    id: 'chatcmpl-scripted',
    object: 'chat.completion.chunk',
    created: 1_700_000_000,
    model: scene.body.model,
  };
  return JSON.stringify({
    ...base,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
    ...rest,
  });
}

function usageChunk(scene: Scene, usage: unknown): string {
  return JSON.stringify({
    id: 'chatcmpl-scripted',
    object: 'chat.completion.chunk',
    created: 1_700_000_000,
    model: scene.body.model,
    choices: [],
    usage,
  });
}

/** The usage of the tokens that were sent. */
function usageOf({ call }: Scene, inputTokens = 10): object {
  return {
    prompt_tokens: inputTokens,
    completion_tokens: call.tokens,
    total_tokens: inputTokens + call.tokens,
  };
}

function completion(
  scene: Scene,
  message: Record<string, unknown> = {},
  members: Record<string, unknown> = {},
): string {
  return JSON.stringify({
    id: 'chatcmpl-scripted',
    object: 'chat.completion',
    created: 1_700_000_000,
    model: scene.body.model,
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'Hello from the provider.', refusal: null, ...message },
        logprobs: null,
        finish_reason: members.finish_reason ?? 'stop',
      },
    ],
    usage: 'usage' in members ? members.usage : { prompt_tokens: 10, completion_tokens: 4, total_tokens: 14 },
    service_tier: 'default',
  });
}

/** Sends the chunks of `chunks=n`, `gap=ms` apart; false when the caller disconnects. */
async function deltas(
  scene: Scene,
  frame: (data: string) => string = (data) => `data: ${data}\n\n`,
): Promise<boolean> {
  const { response, call, parameters, sleep } = scene;
  const chunkCount = Number(parameters.get('chunks') ?? 5);
  const gapMs = Number(parameters.get('gap') ?? 0);
  for (let index = 0; index < chunkCount; index += 1) {
    if (response.destroyed) return false;
    const delta = index === 0 ? { role: 'assistant', content: 'tok0 ' } : { content: `tok${index} ` };
    if (!response.write(frame(chunk(scene, delta)))) await waitForDrain(response);
    call.tokens += 1;
    if (gapMs > 0) await sleep(gapMs);
  }
  return !response.destroyed;
}

/** Resolves when the socket drains or the caller disconnects. */
function waitForDrain(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      response.off('drain', settle);
      response.off('close', settle);
      resolve();
    };
    response.on('drain', settle);
    response.on('close', settle);
  });
}

function finish(
  scene: Scene,
  { reason = 'stop', usage, done = true }: { reason?: string; usage?: unknown; done?: boolean } = {},
): void {
  const { response, body: input } = scene;
  response.write(`data: ${chunk(scene, {}, { finish_reason: reason })}\n\n`);
  const tokenUsage = usage === undefined ? usageOf(scene) : usage;
  if (tokenUsage !== null && input.stream_options?.include_usage === true)
    response.write(`data: ${usageChunk(scene, tokenUsage)}\n\n`);
  if (done) response.write('data: [DONE]\n\n');
  end(scene);
}

function end({ response, call }: Scene, lastPart?: string | Buffer): void {
  call.finishedAt = performance.now();
  response.end(lastPart);
}

function answer(
  scene: Scene,
  status: number,
  body: string | Buffer,
  headers: Record<string, string> = json,
): void {
  scene.response.writeHead(status, headers);
  end(scene, body);
}

function streamOrWhole(work: Script, wholeScript: Script): Script {
  return async (scene) => {
    if (scene.body.stream !== true) return wholeScript(scene);
    scene.response.writeHead(200, eventStream);
    scene.response.flushHeaders();
    await work(scene);
  };
}

const wholeAnswer: Script = (scene) => {
  scene.call.tokens = 4;
  answer(scene, 200, completion(scene));
};

/** Any usage object, streamed and whole. */
function withUsage(usage: unknown): Script {
  return streamOrWhole(
    async (scene) => {
      if (await deltas(scene)) finish(scene, { usage });
    },
    (scene) => answer(scene, 200, completion(scene, {}, { usage: usage ?? undefined })),
  );
}

const scripts: Record<string, Script> = {
  // Returns as many images as requested; images-slow waits `ms` milliseconds first.
  images: (scene) => {
    const { n = 1 } = scene.body as { n?: number };
    answer(
      scene,
      200,
      JSON.stringify({
        created: 1_700_000_000,
        data: Array.from({ length: n }, () => ({ b64_json: scriptedPicture.toString('base64') })),
      }),
    );
  },
  // One image of more than 64 KiB.
  'images-large': (scene) => {
    const image = Buffer.concat([scriptedPicture, Buffer.alloc(100_000)]);
    answer(
      scene,
      200,
      JSON.stringify({ created: 1_700_000_000, data: [{ b64_json: image.toString('base64') }] }),
    );
  },
  'images-slow': async (scene) => {
    await scene.sleep(Number(scene.parameters.get('ms') ?? 600_000));
    if (!scene.response.destroyed) await scripts.images?.(scene);
  },
  // images-later?calls=1: leaves the first `calls` calls of the provider, of any script, without an answer.
  'images-later': (scene) =>
    scene.call.id <= Number(scene.parameters.get('calls') ?? 1)
      ? scene.sleep(600_000)
      : scripts.images?.(scene),
  'images-elsewhere': (scene) =>
    answer(
      scene,
      200,
      JSON.stringify({ created: 1_700_000_000, data: [{ url: 'http://127.0.0.1:1/picture.png' }] }),
    ),
  speech: (scene) => answer(scene, 200, scriptedSound, { 'content-type': 'audio/mpeg' }),
  // speech-long?mb=40: `mb` megabytes of audio.
  'speech-long': (scene) =>
    answer(scene, 200, Buffer.alloc(Number(scene.parameters.get('mb') ?? 40) * 1024 * 1024), {
      'content-type': 'audio/mpeg',
    }),
  whisper: (scene) =>
    answer(
      scene,
      200,
      JSON.stringify({
        task: 'transcribe',
        language: 'english',
        duration: 1.5,
        text: 'Good morning.',
        segments: [{ id: 0, start: 0, end: 1.25, text: ' Good morning.', tokens: [] }],
      }),
    ),
  listener: (scene) => answer(scene, 200, JSON.stringify({ text: 'Good morning.' })),
  'counting-listener': (scene) =>
    answer(scene, 200, JSON.stringify({ text: 'Good morning.', usage: { type: 'duration', seconds: 2 } })),

  // verbatim?sse=…&json=…: exactly these bytes, streamed or whole.
  verbatim: streamOrWhole(
    (scene) => end(scene, scene.parameters.get('sse') ?? ''),
    (scene) => answer(scene, 200, scene.parameters.get('json') ?? ''),
  ),

  unknown: (scene) =>
    answer(
      scene,
      404,
      JSON.stringify({
        error: {
          message: `The model ${scene.body.model} does not exist`,
          type: 'invalid_request_error',
          param: 'model',
          code: 'model_not_found',
        },
      }),
    ),

  // ok?chunks=5&gap=10; without `stream` in the request, one answer.
  ok: streamOrWhole(async (scene) => {
    if (await deltas(scene)) finish(scene);
  }, wholeAnswer),

  // A name with a published tokenizer.
  'gpt-5-mini': (scene) => scripts.ok?.(scene),

  // Answers with the request body.
  mirror: (scene) => answer(scene, 200, completion(scene, { content: scene.call.body.toString('utf8') })),

  // delay?ms=500 before the headers.
  delay: async (scene) => {
    await scene.sleep(Number(scene.parameters.get('ms') ?? 100));
    if (!scene.response.destroyed) await scripts.ok?.(scene);
  },
  'never-headers': async (scene) => scene.sleep(600_000),
  // Sends headers and no body.
  'never-body': async (scene) => {
    scene.response.writeHead(200, scene.body.stream === true ? eventStream : json);
    scene.response.flushHeaders();
    await scene.sleep(600_000);
  },

  // status?code=429&retry_after=1
  status: (scene) => {
    const code = Number(scene.parameters.get('code') ?? 500);
    const retryAfter = scene.parameters.get('retry_after');
    const error = {
      message: scene.parameters.get('message') ?? `scripted ${code}`,
      type: 'scripted',
      param: scene.parameters.get('param'),
      code: scene.parameters.get('error_code') ?? 'scripted_code',
    };
    answer(scene, code, JSON.stringify({ error }), {
      ...json,
      ...(retryAfter === null ? {} : { 'retry-after': retryAfter }),
    });
  },
  // flaky?fails=2&code=503&retry_after=0: the first `fails` calls of this script fail, later ones
  // succeed.
  flaky: (scene) => {
    const earlierCalls = scene.calls.filter((call) => call.script === scene.call.script).length - 1;
    if (earlierCalls >= Number(scene.parameters.get('fails') ?? 1)) return scripts.ok?.(scene);
    if (scene.parameters.get('code') === 'hangup') return scripts.hangup?.(scene);
    return scripts.status?.(scene);
  },

  // refuses-usage?as=param|message|location|nothing: refuses `stream_options`, named in one of the
  // common places.
  'refuses-usage': (scene) => {
    if (scene.body.stream_options === undefined) return scripts['usage-none']?.(scene);
    const mention = scene.parameters.get('as') ?? 'message';
    const bodies: Record<string, object> = {
      message: { error: { message: 'Unrecognized request argument supplied: stream_options' } },
      param: { error: { message: 'Unknown parameter.', param: 'stream_options.include_usage' } },
      location: { detail: [{ type: 'extra_forbidden', loc: ['body', 'stream_options'] }] },
      nothing: { error: { message: 'Bad request.' } },
    };
    answer(scene, mention === 'location' ? 422 : 400, JSON.stringify(bodies[mention]));
  },

  // html?code=502
  html: (scene) =>
    answer(
      scene,
      Number(scene.parameters.get('code') ?? 200),
      '<html><body>internal host db01.corp:5432 is down</body></html>',
      { 'content-type': 'text/html' },
    ),
  // Repeats the key in the error message.
  'key-echo': (scene) => {
    const { authorization, host } = scene.request.headers;
    const message = `Bad request with ${authorization} at http://${host}/v1 (10.1.2.3:8080)`;
    answer(
      scene,
      Number(scene.parameters.get('code') ?? 400),
      JSON.stringify({ error: { message, param: 'messages', code: 'context_length_exceeded' } }),
    );
  },
  // redirect?to=http://…
  redirect: (scene) =>
    answer(scene, 302, '', { location: scene.parameters.get('to') ?? 'http://127.0.0.1:1/' }),
  hangup: (scene) => {
    scene.call.finishedAt = performance.now();
    scene.request.socket.destroy();
  },

  'truncated-json': (scene) => {
    const body = completion(scene);
    answer(scene, 200, body.slice(0, Math.floor(body.length / 2)));
  },
  'short-length': (scene) => {
    const body = completion(scene);
    answer(scene, 200, body, { ...json, 'content-length': String(body.length - 20) });
  },
  'long-length': (scene) => {
    const body = completion(scene);
    scene.response.writeHead(200, { ...json, 'content-length': String(body.length + 20) });
    scene.response.write(body);
    scene.call.finishedAt = performance.now();
    setTimeout(() => scene.request.socket.destroy(), 20);
  },
  gzip: streamOrWhole(
    (scene) => end(scene),
    (scene) => answer(scene, 200, gzipSync(completion(scene)), { ...json, 'content-encoding': 'gzip' }),
  ),
  // A whole answer of `mb` megabytes.
  huge: (scene) => {
    const [head = '', tail = ''] = completion(scene, { content: '<content>' }).split('<content>');
    answer(
      scene,
      200,
      Buffer.concat([
        Buffer.from(head),
        Buffer.alloc(Number(scene.parameters.get('mb') ?? 40) * 1024 * 1024, 'x'),
        Buffer.from(tail),
      ]),
    );
  },

  'no-done': streamOrWhole(async (scene) => {
    if (await deltas(scene)) finish(scene, { done: false });
  }, wholeAnswer),
  'no-finish': streamOrWhole(async (scene) => {
    if (await deltas(scene)) end(scene);
  }, wholeAnswer),
  empty: streamOrWhole(
    (scene) => end(scene),
    (scene) => answer(scene, 200, ''),
  ),
  // reset?chunks=3: sends `chunks` events, then resets the connection.
  reset: streamOrWhole(
    async (scene) => {
      await deltas(scene);
      // Let the written bytes leave first; a reset would overtake them.
      await scene.sleep(30);
      scene.call.finishedAt = performance.now();
      scene.request.socket.resetAndDestroy();
    },
    (scene) => void scene.request.socket.resetAndDestroy(),
  ),
  // Chunks, then silence.
  silence: streamOrWhole(
    async (scene) => {
      await deltas(scene);
      await scene.sleep(600_000);
    },
    async (scene) => {
      scene.response.writeHead(200, json);
      scene.response.write('{"id":');
      await scene.sleep(600_000);
    },
  ),
  'error-event': streamOrWhole(
    async (scene) => {
      await deltas(scene);
      const error = { message: `boom ${scene.request.headers.authorization}`, code: 'server_error' };
      scene.response.write(`data: ${JSON.stringify({ error })}\n\n`);
      end(scene, 'data: [DONE]\n\n');
    },
    (scene) => answer(scene, 200, JSON.stringify({ error: { message: 'boom', code: 'server_error' } })),
  ),
  'error-first': streamOrWhole(
    (scene) => {
      end(scene, `data: ${JSON.stringify({ error: { message: 'boom', code: 'server_error' } })}\n\n`);
    },
    (scene) => answer(scene, 200, JSON.stringify({ error: { message: 'boom' } })),
  ),
  'after-done': streamOrWhole(async (scene) => {
    await deltas(scene);
    scene.response.write(`data: ${chunk(scene, {}, { finish_reason: 'stop' })}\n\ndata: [DONE]\n\n`);
    end(scene, `data: ${chunk(scene, { content: 'too late' })}\n\n`);
  }, wholeAnswer),

  'usage-none': withUsage(null),
  'usage-zero': withUsage({ prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }),
  'usage-negative': withUsage({ prompt_tokens: -10, completion_tokens: -4, total_tokens: -14 }),
  'usage-absurd': withUsage({ prompt_tokens: 1e15, completion_tokens: 1e15, total_tokens: 2e15 }),
  'usage-nonsense': withUsage({ prompt_tokens: 'NaN', completion_tokens: 1.5, total_tokens: null }),
  // Ten times the output that a model with `max_output_tokens: 1000` may have.
  'usage-tenfold': withUsage({ prompt_tokens: 10, completion_tokens: 10_000, total_tokens: 10_010 }),
  // usage-late?ms=300&in=30000: a complete answer, and its usage `ms` milliseconds later.
  'usage-late': streamOrWhole(async (scene) => {
    if (!(await deltas(scene))) return;
    scene.response.write(`data: ${chunk(scene, {}, { finish_reason: 'stop' })}\n\n`);
    await scene.sleep(Number(scene.parameters.get('ms') ?? 300));
    if (scene.response.destroyed) return;
    const input = Number(scene.parameters.get('in') ?? 10);
    scene.response.write(`data: ${usageChunk(scene, usageOf(scene, input))}\n\n`);
    end(scene, 'data: [DONE]\n\n');
  }, wholeAnswer),
  // letters?count=256: an answer of `count` letters, one a chunk, without usage.
  letters: streamOrWhole((scene) => {
    for (let index = 0; index < Number(scene.parameters.get('count') ?? 256); index += 1)
      scene.response.write(`data: ${chunk(scene, { content: 'x' })}\n\n`);
    scene.response.write(`data: ${chunk(scene, {}, { finish_reason: 'stop' })}\n\n`);
    end(scene, 'data: [DONE]\n\n');
  }, wholeAnswer),
  // Sends its usage and then resets the connection.
  'usage-then-cut': streamOrWhole(async (scene) => {
    await deltas(scene);
    scene.response.write(`data: ${usageChunk(scene, usageOf(scene))}\n\n`);
    await scene.sleep(30);
    scene.call.finishedAt = performance.now();
    scene.request.socket.resetAndDestroy();
  }, wholeAnswer),
  // Sends the usage so far, and then nothing.
  'usage-then-silence': streamOrWhole(async (scene) => {
    await deltas(scene);
    scene.response.write(`data: ${usageChunk(scene, usageOf(scene))}\n\n`);
    await scene.sleep(600_000);
  }, wholeAnswer),
  'usage-on-choices': streamOrWhole(async (scene) => {
    await deltas(scene);
    const members = { finish_reason: 'stop', usage: usageOf(scene) };
    scene.response.write(`data: ${chunk(scene, {}, members)}\n\n`);
    end(scene, 'data: [DONE]\n\n');
  }, wholeAnswer),
  'usage-cached': withUsage({
    prompt_tokens: 100,
    completion_tokens: 30,
    total_tokens: 130,
    prompt_tokens_details: { cached_tokens: 60 },
    completion_tokens_details: { reasoning_tokens: 20 },
  }),

  // One event of `mb` megabytes without an end.
  endless: streamOrWhole(async (scene) => {
    const piece = 'x'.repeat(64 * 1024);
    scene.response.write('data: {"id":"');
    for (
      let sentCount = 0;
      sentCount < Number(scene.parameters.get('mb') ?? 50) * 16 && !scene.response.destroyed;
      sentCount += 1
    ) {
      if (!scene.response.write(piece)) await waitForDrain(scene.response);
    }
    end(scene);
  }, wholeAnswer),
  // Multi-byte characters, each byte in a packet of its own.
  'split-utf8': streamOrWhole(async (scene) => {
    const event = Buffer.from(
      `data: ${chunk(scene, { role: 'assistant', content: 'Grüße, 世界 🌍' })}\n\n`,
      'utf8',
    );
    for (const byte of event) {
      scene.response.write(Buffer.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    scene.call.tokens = 3;
    finish(scene);
  }, wholeAnswer),
  'invalid-utf8': streamOrWhole(
    async (scene) => {
      await deltas(scene);
      scene.response.write(
        Buffer.concat([
          Buffer.from('data: {"choices":[{"delta":{"content":"'),
          Buffer.of(0xff, 0xfe, 0xc0),
          Buffer.from('"}}]}\n\n'),
        ]),
      );
      finish(scene);
    },
    (scene) =>
      answer(
        scene,
        200,
        Buffer.concat([Buffer.from('{"choices":[],"x":"'), Buffer.of(0xff), Buffer.from('"}')]),
      ),
  ),
  // lines?end=cr|crlf|lf&bom=1: the other line ends that the format allows.
  lines: streamOrWhole(async (scene) => {
    const newline = { cr: '\r', crlf: '\r\n', lf: '\n' }[scene.parameters.get('end') ?? 'lf'] ?? '\n';
    if (scene.parameters.get('bom') !== null) scene.response.write('\ufeff');
    const frame = (data: string) => `data: ${data}${newline}${newline}`;
    await deltas(scene, frame);
    scene.response.write(frame(chunk(scene, {}, { finish_reason: 'stop' })));
    end(scene, frame('[DONE]'));
  }, wholeAnswer),
  comments: streamOrWhole(async (scene) => {
    for (
      let index = 0;
      index < Number(scene.parameters.get('count') ?? 10_000) && !scene.response.destroyed;
      index += 1
    ) {
      scene.response.write(': still here\n\n');
      await scene.sleep(Number(scene.parameters.get('gap') ?? 20));
    }
    end(scene);
  }, wholeAnswer),
  // drip?gap=1000: the answer one byte at a time.
  drip: streamOrWhole(async (scene) => {
    const text = `data: ${chunk(scene, { content: 'slow' })}\n\n`;
    for (const character of text) {
      if (scene.response.destroyed) return;
      scene.response.write(character);
      await scene.sleep(Number(scene.parameters.get('gap') ?? 1000));
    }
    finish(scene);
  }, wholeAnswer),
  // Text that resembles the end of the stream.
  'forged-done': streamOrWhole((scene) => {
    scene.response.write(
      `data: ${chunk(scene, { role: 'assistant', content: 'data: [DONE]\n\n[DONE]' })}\n\n`,
    );
    scene.call.tokens = 1;
    finish(scene);
  }, wholeAnswer),
  'not-json': streamOrWhole(async (scene) => {
    await deltas(scene);
    scene.response.write('data: {"choices":[{"delta":{"content":"cut\n\n');
    finish(scene);
  }, wholeAnswer),
  // JSON in answer to a request for a stream.
  'no-stream': wholeAnswer,

  tools: streamOrWhole(
    (scene) => {
      const call = (part: Record<string, unknown>) => chunk(scene, { tool_calls: [{ index: 0, ...part }] });
      scene.response.write(`data: ${chunk(scene, { role: 'assistant', content: null })}\n\n`);
      const weatherTool = { name: 'get_weather', arguments: '' };
      scene.response.write(`data: ${call({ id: 'call_1', type: 'function', function: weatherTool })}\n\n`);
      scene.response.write(`data: ${call({ function: { arguments: '{"city":' } })}\n\n`);
      scene.response.write(`data: ${call({ function: { arguments: '"Oslo"}' } })}\n\n`);
      scene.call.tokens = 8;
      finish(scene, { reason: 'tool_calls' });
    },
    (scene) => {
      const calls = [
        { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Oslo"}' } },
      ];
      answer(
        scene,
        200,
        completion(scene, { content: null, tool_calls: calls }, { finish_reason: 'tool_calls' }),
      );
    },
  ),
  reasoning: streamOrWhole(
    (scene) => {
      scene.response.write(
        `data: ${chunk(scene, { role: 'assistant', reasoning_content: 'Let me think. ' })}\n\n`,
      );
      scene.response.write(`data: ${chunk(scene, { reasoning_content: 'Done.' })}\n\n`);
      scene.response.write(`data: ${chunk(scene, { content: 'Forty-two.' })}\n\n`);
      scene.call.tokens = 5;
      finish(scene);
    },
    (scene) =>
      answer(
        scene,
        200,
        completion(scene, { content: 'Forty-two.', reasoning_content: 'Let me think. Done.' }),
      ),
  ),
};

function parseBody(body: Buffer): RequestBody {
  try {
    return JSON.parse(body.toString('utf8')) as RequestBody;
  } catch {
    // A multipart form has the model in a field.
    const model = /name="model"\r\n\r\n([^\r]*)\r\n/.exec(body.toString('latin1'))?.[1];
    return model === undefined ? {} : { model };
  }
}

/** One red pixel. */
export const scriptedPicture = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC',
  'base64',
);
/** Bytes that match no media type. */
export const scriptedSound = Buffer.from('ID3 the sound of the scripted provider', 'latin1');
