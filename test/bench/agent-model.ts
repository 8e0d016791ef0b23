// The scripted model of the agent benchmark, in a process of its own so that it shares no event
// loop with the measuring clients. It speaks our gateway's protocol and chat completions. The
// prompt sets the answer: TOK=n words, GAP=ms between them, and STAMP writes the machine's
// monotonic clock into each. The first line of output is the port.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { monotonicMs } from './agent-runtimes.ts';

const provider = createServer((incoming, answer) => {
  void (async () => {
    const pieces: Buffer[] = [];
    for await (const piece of incoming) pieces.push(piece as Buffer);
    const isOurs = incoming.url === '/v1/ai/stream';
    if (!isOurs && incoming.url !== '/v1/chat/completions')
      return void answer.writeHead(404, { 'content-type': 'application/json' }).end('{}');
    const body = JSON.parse(Buffer.concat(pieces).toString()) as {
      stream?: boolean;
      prompt?: { role: string; content: unknown }[];
      messages?: { role: string; content: unknown }[];
    };
    const prompt = JSON.stringify(
      (body.prompt ?? body.messages ?? []).findLast(({ role }) => role === 'user')?.content ?? '',
    );
    const count = Number(/TOK=(\d+)/.exec(prompt)?.[1] ?? 1);
    const gapMs = Number(/GAP=(\d+)/.exec(prompt)?.[1] ?? 0);
    const usage = { prompt_tokens: 10, completion_tokens: count, total_tokens: 10 + count };
    if (!isOurs && body.stream !== true) {
      const choices = [
        { index: 0, message: { role: 'assistant', content: 'A title' }, finish_reason: 'stop' },
      ];
      return void answer
        .writeHead(200, { 'content-type': 'application/json' })
        .end(
          JSON.stringify({ id: 'c', object: 'chat.completion', created: 1, model: 'fake-1', choices, usage }),
        );
    }
    const send = (part: object) => answer.write(`data: ${JSON.stringify(part)}\n\n`);
    const chunk = (delta: object, finish: string | null) =>
      send({
        id: 'c',
        object: 'chat.completion.chunk',
        created: 1,
        model: 'fake-1',
        choices: [{ index: 0, delta, finish_reason: finish }],
      });
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    if (isOurs) {
      send({ type: 'stream-start', warnings: [] });
      send({ type: 'text-start', id: 't' });
    } else chunk({ role: 'assistant', content: '' }, null);
    for (let index = 0; index < count && !answer.destroyed; index += 1) {
      const text = prompt.includes('STAMP') ? `<${monotonicMs().toFixed(2)}>` : `word${index} `;
      if (isOurs) send({ type: 'text-delta', id: 't', delta: text });
      else chunk({ content: text }, null);
      if (gapMs > 0) await new Promise((resolve) => setTimeout(resolve, gapMs));
    }
    if (isOurs) {
      send({ type: 'text-end', id: 't' });
      send({
        type: 'finish',
        finishReason: { unified: 'stop' },
        usage: { inputTokens: { total: 10 }, outputTokens: { total: count } },
      });
    } else {
      chunk({}, 'stop');
      send({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'fake-1', choices: [], usage });
    }
    answer.end('data: [DONE]\n\n');
  })().catch(() => answer.destroy());
});
provider.listen(0, '127.0.0.1', () => console.log((provider.address() as AddressInfo).port));
