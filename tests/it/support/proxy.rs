//! A proxy that lets everything through to one place, whatever it was asked for, and writes down what it was asked for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A proxy on a free port. Its threads end with the process.
pub(crate) struct Proxy {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Everything ends up at `target`. Who does not bring `credentials` (`USER:PASSWORD` in base64) gets nothing.
    pub(crate) fn start(target: &str, credentials: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (target, credentials) = (target.to_owned(), format!("basic {credentials}").to_lowercase());
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (target, credentials, seen) = (target.clone(), credentials.clone(), Arc::clone(&seen));
                // A connection that breaks off is seen by who made it.
                std::thread::spawn(move || serve(&stream, &target, &credentials, &seen));
            }
        });
        Self { address, heads }
    }

    /// The first head of each connection, in lower case.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("nobody panicked").clone()
    }
}

fn serve(client: &TcpStream, target: &str, credentials: &str, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let is_tunnel = head.starts_with("CONNECT ");
    let lower = head.to_lowercase();
    let is_known = lower.contains(&format!("proxy-authorization: {credentials}\r\n"));
    seen.lock().ok()?.push(lower);
    let mut client = client;
    if !is_known {
        return client
            .write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            .ok();
    }
    let mut server = TcpStream::connect(target).ok()?;
    if is_tunnel {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    } else {
        // Servers take a whole URL in the first line of a request too.
        server.write_all(head.as_bytes()).ok()?;
    }
    let (mut to_server, mut to_client) = (server.try_clone().ok()?, client.try_clone().ok()?);
    let back = std::thread::spawn(move || {
        let _ = std::io::copy(&mut server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let mut piece = [0; 16 * 1024];
    loop {
        let length = reader.read(&mut piece).ok().filter(|length| *length > 0);
        let Some(length) = length else { break };
        if to_server.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to_server.shutdown(Shutdown::Both);
    back.join().ok()
}
