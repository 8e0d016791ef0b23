// Sessions: the event log, the runs that write it, and the routes to both.
export { createChat, type Chat } from './chat.ts';
export { createSessionRoom, preloadLoop, type SessionRoom } from './compose.ts';
export type { GivenAttachment as Attachment } from './attachments/files.ts';
export type { Inputs } from './submit.ts';
export type { SessionKind, SessionStore } from './event-log/session-store.ts';
