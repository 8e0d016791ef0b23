// The route that downloads an attachment.
import { includesTag } from '../../kernel/etag.ts';
import { Problem } from '../../kernel/problem.ts';
import { cacheHeaders, contentHeaders, mediaTypeOf } from './attachments/download.ts';
import type { AttachmentRecord } from './attachments/store.ts';
import { readEvent, type SessionEvent } from './event-log/events.ts';
import { segmentsOf, type SessionRecord } from './event-log/session-store.ts';
import type { HandlerOptions, SessionHandlers } from './session-options.ts';

export function attachmentHandlers(options: HandlerOptions): SessionHandlers<'sessions.getAttachment'> {
  const { files, requireSession } = options;
  return {
    'sessions.getAttachment': async ({ path, headers: { 'if-none-match': ifNoneMatch } }) => {
      const session = await requireSession(path.sessionId);
      const attachment = await requireAttachment(options, session, path.attachmentId);
      const headers = cacheHeaders(attachment);
      if (ifNoneMatch !== undefined && includesTag(ifNoneMatch, headers.etag))
        return { status: 304, headers };
      const content = await files.read(attachment.sessionKey, attachment.storedName);
      if (content === null)
        throw attachmentNotFound('The file of this attachment was removed from the disk.');
      return {
        status: 200,
        content,
        mediaType: mediaTypeOf(attachment),
        headers: { ...headers, ...contentHeaders(attachment) },
      };
    },
  };
}

/**
 * Throws 404 unless the attachment came with a message of the session or, in a fork, with an inherited one.
 */
async function requireAttachment(
  { attachments, events }: HandlerOptions,
  session: SessionRecord,
  attachmentId: string,
): Promise<AttachmentRecord> {
  const attachment = (await attachments.find([attachmentId])).get(attachmentId);
  if (attachment === undefined) throw attachmentNotFound();
  // Search the messages, since the attachment itself names only the session that received it: a fork inherits
  // messages of its ancestors with their attachments.
  const messageEvents = await events.messageEvents(segmentsOf(session), attachment.messageId);
  if (!messageEvents.some((event) => hasAttachment(readEvent(event), attachmentId)))
    throw attachmentNotFound();
  return attachment;
}

function hasAttachment(event: SessionEvent, attachmentId: string): boolean {
  return (
    event.type === 'message.completed' &&
    event.message.parts.some(
      (part) => part.type === 'data-attachment' && part.data.attachmentId === attachmentId,
    )
  );
}

function attachmentNotFound(message = 'There is no attachment with this id in the session.'): Problem {
  return new Problem('not_found', 'attachment_not_found', message, { param: 'attachmentId' });
}
