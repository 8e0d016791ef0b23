// `townhall users`: the users of a gateway.
import { resourceAction, resourceNotes, type SubjectCompletion } from '../call/resource.ts';
import type { Command } from '../command-line/command.ts';

const users: SubjectCompletion = {
  operationId: 'accounts.listUsers',
  id: 'user_id',
  labels: ['email', 'display_name'],
};

export const command: Command = {
  description: [
    'Lists the users of a running gateway and blocks, unblocks or removes one. For administrators.',
  ],
  actions: [
    resourceAction({
      path: 'list',
      summary: 'The users of all Bureaus or one, the oldest first.',
      operationId: 'accounts.listUsers',
      columns: ['user_id', 'bureau_id', 'state', 'email', 'display_name', 'created_at'],
    }),
    resourceAction({
      path: 'balances',
      summary: 'The balances of users.',
      operationId: 'credits.listAccounts',
      columns: ['user_id', 'bureau_id', 'available', 'held', 'posted', 'owed'],
    }),
    resourceAction({
      path: 'grant',
      summary: 'Gives a user credits: credits=N reason=TEXT.',
      operationId: 'credits.grantCredits',
      subject: 'user_id',
      completion: users,
    }),
    resourceAction({
      path: 'block',
      summary: 'Refuses the tokens and logins of a user.',
      operationId: 'accounts.blockUser',
      subject: 'user_id',
      completion: users,
    }),
    resourceAction({
      path: 'unblock',
      summary: 'Admits a blocked user again.',
      operationId: 'accounts.unblockUser',
      subject: 'user_id',
      completion: users,
    }),
    resourceAction({
      path: 'remove',
      summary: 'Ends an account permanently and deletes its personal data.',
      operationId: 'accounts.removeUser',
      subject: 'user_id',
      completion: users,
    }),
  ],
  notes: resourceNotes,
};
