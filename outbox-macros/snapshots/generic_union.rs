#[automatically_derived]
impl<A, B> ::outbox::__private::OutboxEvent for Either<A, B>
where
    A: Debug,
    A: ::outbox::__private::OutboxEvent,
    B: ::outbox::__private::OutboxEvent,
{
    const TYPES: ::outbox::__private::TypeSet = ::outbox::__private::TypeSet::Any(const {
        ::outbox::__private::disjoint(
            &[
                <A as ::outbox::__private::OutboxEvent>::TYPES,
                <B as ::outbox::__private::OutboxEvent>::TYPES,
            ],
        )
    });
    fn meta(&self) -> &'static ::outbox::__private::EventMeta {
        match self {
            Self::A(event) => <A as ::outbox::__private::OutboxEvent>::meta(event),
            Self::B(event) => <B as ::outbox::__private::OutboxEvent>::meta(event),
        }
    }
    fn aggregate_id(
        &self,
    ) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self::A(event) => {
                <A as ::outbox::__private::OutboxEvent>::aggregate_id(event)
            }
            Self::B(event) => {
                <B as ::outbox::__private::OutboxEvent>::aggregate_id(event)
            }
        }
    }
    fn key(&self) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self::A(event) => <A as ::outbox::__private::OutboxEvent>::key(event),
            Self::B(event) => <B as ::outbox::__private::OutboxEvent>::key(event),
        }
    }
    fn headers(
        &self,
        headers: &mut ::outbox::__private::Headers,
    ) -> ::outbox::__private::OutboxResult<()> {
        match self {
            Self::A(event) => {
                <A as ::outbox::__private::OutboxEvent>::headers(event, headers)
            }
            Self::B(event) => {
                <B as ::outbox::__private::OutboxEvent>::headers(event, headers)
            }
        }
    }
    fn encode(
        &self,
        codec: &dyn ::outbox::__private::Codec,
    ) -> ::outbox::__private::OutboxResult<::outbox::__private::Vec<u8>> {
        match self {
            Self::A(event) => {
                <A as ::outbox::__private::OutboxEvent>::encode(event, codec)
            }
            Self::B(event) => {
                <B as ::outbox::__private::OutboxEvent>::encode(event, codec)
            }
        }
    }
}
#[automatically_derived]
impl<A, B> ::outbox::__private::DecodeEvent for Either<A, B>
where
    A: Debug,
    A: ::outbox::__private::OutboxEvent,
    B: ::outbox::__private::OutboxEvent,
    for<'__de> A: ::outbox::__private::DecodeInner<'__de>,
    for<'__de> B: ::outbox::__private::DecodeInner<'__de>,
{
    fn decode(
        message: &::outbox::__private::Message,
        codecs: &::outbox::__private::Codecs,
    ) -> ::outbox::__private::OutboxResult<Self> {
        if ::outbox::__private::answers::<A>(message) {
            return ::outbox::__private::Result::map(
                <A as ::outbox::__private::DecodeEvent>::decode(message, codecs),
                Self::A,
            );
        }
        if ::outbox::__private::answers::<B>(message) {
            return ::outbox::__private::Result::map(
                <B as ::outbox::__private::DecodeEvent>::decode(message, codecs),
                Self::B,
            );
        }
        ::outbox::__private::Result::Err(
            ::outbox::__private::unknown_type("Either", message),
        )
    }
}
