// Sessions: the event log, the runs that write it, and the routes to both.
export { createChat, type Chat, type ChatMessage, type ChatReceipt } from './chat.ts';
export { createSessions, type Sessions } from './compose.ts';
