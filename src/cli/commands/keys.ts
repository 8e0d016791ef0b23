// `townhall keys`: the API keys of the user whose token is used.
import { resourceAction, resourceNotes } from '../call/resource.ts';
import type { Command } from '../command-line/command.ts';

export const command: Command = {
  description: ['Lists, creates and revokes your own API keys at a running gateway.'],
  actions: [
    resourceAction({
      path: 'list',
      summary: 'Your valid keys, the oldest first.',
      operationId: 'accounts.listKeys',
      columns: ['token_id', 'name', 'last4', 'credits_spent', 'credit_cap', 'expires_at', 'last_used_at'],
    }),
    resourceAction({
      path: 'create',
      summary: 'Creates a key: credit_cap=N, models=[…], ttl=SECONDS. The answer shows it once.',
      operationId: 'accounts.createKey',
      subject: 'name',
    }),
    resourceAction({
      path: 'revoke',
      summary: 'Revokes a key.',
      operationId: 'accounts.revokeKey',
      subject: 'token_id',
      completion: { operationId: 'accounts.listKeys', id: 'token_id', labels: ['name'] },
    }),
  ],
  notes: resourceNotes,
};
