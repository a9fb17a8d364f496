// Keeps the stream of a page's events open while an event is at work. The server ends the stream after the last event
// that it knows. On a slow link, the visitor may have pressed something meanwhile: the page still counts on the ended
// stream, and would wait for ever. So this script asks for the stream again, and the page sees one stream.
{
  const {fetch} = window;
  const atWork = new Set(); // ids of events that have no result yet
  const COMPLETED = /^data: ?\{"msg":"process_completed","event_id":"(\w+)"/;
  const END = /^data: ?\{"msg":"close_stream"/;
  const UNKNOWN = /^data: ?\{"msg":"unexpected_error".*"session_not_found":true/;

  const pass = async (request, first, out) => {
    const encoder = new TextEncoder();
    let answer = first;
    let end = ''; // the message that ended the stream before
    while (answer) {
      const reader = answer.body.getReader();
      const decoder = new TextDecoder();
      answer = null;
      let text = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (done) break;
        const messages = (text + decoder.decode(value, {stream: true})).split('\n\n');
        text = messages.pop();
        for (const message of messages) {
          atWork.delete(COMPLETED.exec(message)?.[1]);
          const isOver = end && UNKNOWN.test(message); // the server has forgotten what was at work
          if (isOver) atWork.clear();
          if (END.test(message) && atWork.size) {
            end = message;
            answer = await fetch(...request);
          } else {
            out.enqueue(encoder.encode(`${isOver ? end : message}\n\n`));
          }
        }
      }
      if (text) out.enqueue(encoder.encode(text));
    }
    out.close();
  };

  window.fetch = async (...request) => {
    const {pathname} = new URL(request[0]?.url || request[0], location.href);
    const answer = await fetch(...request);
    if (pathname.endsWith('/queue/join') && answer.ok) {
      const {event_id: event} = await answer.clone().json();
      if (event) atWork.add(event);
    }
    if (!pathname.endsWith('/queue/data') || !answer.ok || !answer.body) return answer;
    const body = new ReadableStream({start: (out) => { pass(request, answer, out).catch((error) => out.error(error)); }});
    return new Response(body, {status: answer.status, headers: answer.headers});
  };
}
