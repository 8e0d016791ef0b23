// A scripted provider of chat completions in a process of its own: `provider.ts PORT`. A whole answer has
// ten tokens; a streamed one has as many chunks as the model's name says (`chunks-100`), without a pause.
import { createServer, type ServerResponse } from 'node:http';

const usage = { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 };
const head = { id: 'chatcmpl-bench', created: 1_700_000_000 };
const wholeAnswer = JSON.stringify({
  ...head,
  object: 'chat.completion',
  model: 'bench',
  choices: [
    {
      index: 0,
      message: {
        role: 'assistant',
        content: 'An answer of an ordinary length for a short question.',
        refusal: null,
      },
      finish_reason: 'stop',
      logprobs: null,
    },
  ],
  usage,
});

function sendStream(response: ServerResponse, model: string, chunks: number): void {
  const send = (members: object) =>
    response.write(
      `data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', model, ...members })}\n\n`,
    );
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  for (let index = 0; index < chunks; index += 1) {
    const delta = index === 0 ? { role: 'assistant', content: 'word ' } : { content: 'word ' };
    send({ choices: [{ index: 0, delta, finish_reason: null }] });
  }
  send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
  send({ choices: [], usage: { ...usage, completion_tokens: chunks, total_tokens: 10 + chunks } });
  response.end('data: [DONE]\n\n');
}

createServer((request, response) => {
  const pieces: Buffer[] = [];
  request.on('data', (piece: Buffer) => pieces.push(piece));
  request.on('end', () => {
    const { model, stream } = JSON.parse(Buffer.concat(pieces).toString()) as {
      model: string;
      stream?: boolean;
    };
    if (stream === true) return sendStream(response, model, Number(/chunks-(\d+)/.exec(model)?.[1] ?? 20));
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(wholeAnswer),
    });
    response.end(wholeAnswer);
  });
}).listen(Number(process.argv[2]), '127.0.0.1');
