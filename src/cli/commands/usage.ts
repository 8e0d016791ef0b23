// `townhall usage`: what calls used and cost.
import { resourceAction, resourceNotes } from '../call/resource.ts';
import type { Command } from '../command-line/command.ts';

export const command: Command = {
  description: [
    'Lists the calls at a running gateway: your own, or as an administrator the calls of all users.',
  ],
  actions: [
    resourceAction({
      path: 'list',
      summary: 'The calls, the newest first; request_id=… finds one, model=… and from=… narrow the list.',
      operationId: 'usage.listRecords',
      columns: [
        'created_at',
        'request_id',
        'model',
        'failure_code',
        'outcome',
        'credits',
        'duration_ms',
        'attempts',
        'action',
        'user_id',
      ],
    }),
  ],
  notes: resourceNotes,
};
