// The conversation of a socket whose client leaves; response-socket.test.ts has real sockets.
import { expect, test } from 'vitest';
import { createResponseSockets } from '../../../src/gateway/ai/responses/socket.ts';
import { systemClock } from '../../../src/kernel/clock.ts';

const model = 'acme/ok';

test('a conversation that is read after its close takes no memory from other sockets', () => {
  const openConversation = createResponseSockets(systemClock);
  // All sockets together may keep 256 MiB, and a conversation has at most 10 MiB.
  const input = 'x'.repeat(9 * 2 ** 20);
  for (let count = 0; count < 30; count += 1) {
    const conversation = openConversation();
    conversation.close();
    // A client may leave while its message is parsed.
    conversation.read({ type: 'response.create', model, input, generate: false });
  }
  const conversation = openConversation();
  const warmUp = conversation.read({ type: 'response.create', model, input, generate: false });
  const [event] = warmUp !== undefined && 'events' in warmUp ? warmUp.events : [];
  const response = event?.['response'] as { id: string } | undefined;
  const next = conversation.read({
    type: 'response.create',
    model,
    previous_response_id: response?.id,
    input: 'go on',
  });
  expect(next).toMatchObject({
    body: { previous_response_id: null, input: [{ role: 'user' }, { role: 'user' }] },
  });
});
